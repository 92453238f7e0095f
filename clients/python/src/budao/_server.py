"""`budao.serve()`: the bundled server for scripts, notebooks and tests."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from ._client import Client
from ._find import find_program

if TYPE_CHECKING:
    from . import sync

#: Seconds for the start of the server, and for its orderly end.
_START, _STOP = 60.0, 20.0
_ADDRESS = re.compile(r"http://(127\.0\.0\.1:\d+)")


class ServerFailed(RuntimeError):
    """The server did not start. The message has its last lines."""


class Server:
    """A running server. It ends with `stop`, at the end of `with`, and with this process."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str, token: str, folder: "Path") -> None:
        self._process = process
        self.address = address
        self.token = token
        #: The folder of the journal and of the log.
        self.folder = folder
        atexit.register(self.stop)

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"ws://{self.address}/ws"

    @property
    def page(self) -> str:
        """The web page, with the token: open it in a browser on this machine."""
        return f"http://{self.address}/#token={self.token}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, **options: Any) -> Client:
        return Client(self.url, token=self.token, **options)

    def sync(self, **options: Any) -> "sync.Client":
        """A client for programs without asyncio."""
        from . import sync

        return sync.Client(self.url, token=self.token, **options)

    def stop(self) -> None:
        """Stops the server. Runs continue when a server is started on the same journal."""
        atexit.unregister(self.stop)
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def kill(self) -> None:
        """Ends the server without a chance to clean up, as a crash does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()


def serve(
    *,
    model: str = "demo",
    folder: str | os.PathLike[str] | None = None,
    permission: str = "approval",
    token: str | None = None,
    listen: str = "127.0.0.1:0",
    args: Sequence[str] = (),
) -> Server:
    """Starts the bundled server and returns when it listens.

    `folder` has the journal, so that a later start on it continues; without it, a temporary folder is used. `model` and
    `permission` are those of `budao serve`, and `args` are further arguments of it.
    """
    home = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="budao-"))
    home.mkdir(parents=True, exist_ok=True)
    secret = token or secrets.token_urlsafe(24)
    command = [str(find_program()), "serve", "--listen", listen, "--journal", str(home / "journal.db")]
    command += ["--model", model, "--permission", permission, "--exit-with-stdin", *args]
    with open(home / "server.log", "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "BUDAO_TOKEN": secret},
            start_new_session=True,
        )
    address = _address(process, home)
    return Server(process, address, secret, home)


def _address(process: "subprocess.Popen[bytes]", home: Path) -> str:
    """Reads the address from the server's first lines, and the rest in the background so that the pipe stays empty."""
    assert process.stdout is not None
    limit = threading.Timer(_START, process.kill)
    limit.start()
    said = ""
    try:
        for line in process.stdout:
            said += line.decode(errors="replace")
            found = _ADDRESS.search(said)
            if found is not None:
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return found[1]
    finally:
        limit.cancel()
    process.wait()
    tail = (home / "server.log").read_text(errors="replace")[-2000:]
    raise ServerFailed(f"budao serve ended with {process.returncode}:\n{said}{tail}")
