"""Measures calls of a Python function: as a remote tool of a worker, and behind an MCP server over stdio.

Both run the same function on the same server, in sessions that run at the same time, each with steps of many parallel calls. Printed
as one line of JSON for each: calls a second, and CPU microseconds a call of the server, of the function's process, and of both.
The goals: 1 000 calls a second with one worker, 60 µs of server CPU a call (release build), and at most twice the CPU of MCP.
Usage: calls.py --home FOLDER [--calls 20000] [--sessions 8] [--parallel 50] [--mcp-python PYTHON]; BUDAO_BIN names another program than the debug build.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "python/src"), str(HERE.parent / "python/tests")]

from budao import Client, FinalAnswer, ToolResult  # noqa: E402
from harness import TOKEN, TestServer  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
WORKER = """
import os, sys
from budao import Client, Worker, tool
@tool(read_only=True)
def double(n: int) -> int:
    "Doubles."
    return 2 * n
Worker(Client(sys.argv[1], token=os.environ["TOKEN"]), [double], name="doubler", capacity=256).run(ready=lambda: print("ready", flush=True))
"""
MCP = """
import json, sys
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, answer = request["method"], {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "doubler", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "double", "description": "Doubles.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": str(2 * request["params"]["arguments"]["n"])}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""

#: The same with the Python package of the MCP project.
MCP_PACKAGE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("doubler")
@server.tool()
def double(n: int) -> int:
    "Doubles."
    return 2 * n
server.run("stdio")
"""


def cpu(pid: int) -> float:
    """Seconds of CPU that a process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def descendants(pid: int) -> list[int]:
    """The processes of the MCP server: those that the server started, and those that they started."""
    children = [int(found) for task in Path(f"/proc/{pid}/task").iterdir() for found in (task / "children").read_text().split()]
    return children + [below for found in children for below in descendants(found)]


def script(tool: str, steps: int, parallel: int) -> str:
    # Arguments differ in each step, or the brake takes the calls for a loop.
    calls = ["".join(f"[[step.call]]\ntool = '{tool}'\narguments = '{json.dumps({'n': step * parallel + n})}'\n" for n in range(parallel)) for step in range(steps)]
    return 'order = "history"\n' + "".join(f"[[step]]\n{step}" for step in calls) + '[[step]]\ntext = "Done."\nrepeat = "forever"\n'


async def run_sessions(url: str, sessions: int) -> int:
    """Runs the sessions; returns the number of calls that succeeded."""

    async def one() -> int:
        done = 0
        async with await Client(url, token=TOKEN).create() as session:
            async for event in session.stream("go"):
                if isinstance(event, ToolResult):
                    assert event.succeeded, event
                    done += 1
                if isinstance(event, FinalAnswer):
                    return done
        raise SystemExit("a session ended without an answer")

    return sum(await asyncio.gather(*(one() for _ in range(sessions))))


def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    steps = max(1, options.calls // (options.sessions * options.parallel))
    tool = "double" if name == "worker" else "mcp__doubler__double"
    home = Path(options.home) / name
    home.mkdir(parents=True)
    args = ["--permission", "auto"]
    if name == "mcp":
        (home / "server.py").write_text(MCP_PACKAGE if options.mcp_python else MCP)
        transport = f'{{ type = "stdio", command = "{options.mcp_python or sys.executable}", args = ["{home / "server.py"}"] }}'
        (home / "budao.toml").write_text(f'[[mcp]]\nname = "doubler"\nrequired = true\ntransport = {transport}\n')
        args += ["--config", str(home / "budao.toml")]
    server = TestServer(script=script(tool, steps, options.parallel), args=args, home=home)
    worker = None
    if name == "worker":
        env = {**os.environ, "TOKEN": TOKEN, "PYTHONPATH": str(HERE.parent / "python/src")}
        worker = subprocess.Popen([sys.executable, "-c", WORKER, server.url], env=env, stdout=subprocess.PIPE)
        assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
    try:
        pid = server.pid
        others = [worker.pid] if worker is not None else descendants(pid)

        def used() -> tuple[float, float]:
            return cpu(pid), sum(map(cpu, others))

        began, before = time.monotonic(), used()
        calls = asyncio.run(run_sessions(server.url, options.sessions))
        took, after = time.monotonic() - began, used()
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait()
        server.stop()
    wanted = steps * options.parallel * options.sessions
    assert calls == wanted, f"{calls} of {wanted} calls"
    each = [round((late - early) / calls * 1e6) for early, late in zip(before, after)]
    return {"tool": name, "calls": calls, "per_second": round(calls / took), "server_us": each[0], "function_us": each[1], "both_us": sum(each)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--parallel", type=int, default=50)
    parser.add_argument("--home", required=True, help="an empty folder for the servers")
    parser.add_argument("--mcp-python", help="a Python with the package `mcp` (cargo xtask peers mcp-python); else a server of 20 lines")
    options = parser.parse_args()
    rows = [measure(name, options) for name in ("worker", "mcp")]
    for row in rows:
        print(json.dumps(row))
    print(json.dumps({"worker_over_mcp": round(float(str(rows[0]["both_us"])) / float(str(rows[1]["both_us"])), 2)}))


main()
