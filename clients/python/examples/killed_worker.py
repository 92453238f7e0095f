"""A worker that is killed in a call. An idempotent call runs again elsewhere; the outcome of any other is unknown."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import budao

LEDGER = Path(os.environ.get("LEDGER") or tempfile.mkdtemp()) / "ledger"


def work(what: str) -> str:
    """Writes down that it began, takes a while if it is the first one, and writes down that it ended."""
    is_first = what not in (LEDGER.read_text() if LEDGER.exists() else "")
    with LEDGER.open("a") as ledger:
        ledger.write(f"{what} began in {os.getpid()}\n")
    time.sleep(60 if is_first else 0)
    return "done"


@budao.tool(idempotent=True)
def index(what: str) -> str:
    """Builds an index; building it twice does no harm."""
    return work(f"index {what}")


@budao.tool
def post(what: str) -> str:
    """Sends a parcel; sending it twice would be wrong."""
    return work(f"post {what}")


def start_worker(server_url: str, token: str) -> "subprocess.Popen[bytes]":
    env = {**os.environ, "TOKEN": token, "LEDGER": str(LEDGER.parent)}
    worker = subprocess.Popen([sys.executable, __file__, "worker", server_url], env=env, stdout=subprocess.PIPE)
    assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
    return worker


def kill_in_call(worker: "subprocess.Popen[bytes]", what: str) -> None:
    while what not in (LEDGER.read_text() if LEDGER.exists() else ""):
        time.sleep(0.05)
    print(f"killing the worker in `{what}`")
    worker.send_signal(signal.SIGKILL)
    worker.wait()


def main() -> None:
    with budao.serve(permission="auto") as server, server.sync().create() as session:
        for what in ("index all", "post parcel"):
            tool, argument = what.split()
            worker = start_worker(server.url, server.token)
            command = session.send(f"call {tool} with what={argument}")
            kill_in_call(worker, what)
            worker = start_worker(server.url, server.token)
            for event in session.events():
                if isinstance(event, budao.ToolResult) and event.fault is not None and event.fault.kind != "invalid_arguments":
                    print("told:", event.fault.code, event.fault.message)
                if isinstance(event, (budao.FinalAnswer, budao.TurnFailure)) and event.command_id == command:
                    print("end:", event.text)
                    break
            worker.terminate()
            worker.wait()
    print(LEDGER.read_text(), end="")


if sys.argv[1:2] == ["worker"]:
    budao.Worker(budao.Client(sys.argv[2], token=os.environ["TOKEN"]), [index, post], name="parcels").run(ready=lambda: print("ready", flush=True))
else:
    main()
