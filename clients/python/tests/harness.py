"""The real server for tests in Python, and a proxy that breaks connections."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

TOKEN = "a-token-for-tests"
#: A worker that is gone is given up soon, so that tests need not wait.
IMPATIENT = {"BUDAO__SERVE__WORKERS__GRACE": "1000"}
#: A worker that comes back finds its calls, however slow the machine is.
PATIENT = {"BUDAO__SERVE__WORKERS__GRACE": "120000"}
PROGRAM = os.environ.get("BUDAO_BIN") or str(Path(__file__).parents[3] / "target/debug/budao")


class TestServer:
    """`budao serve` on a free port, in a folder of its own."""

    __test__ = False

    def __init__(self, *, script: str | None = None, model: str = "demo:fast", home: Path | None = None, journal: str = "journal.db", args: list[str] | None = None, env: dict[str, str] | None = None) -> None:
        self.home = home or Path(tempfile.mkdtemp(prefix="budao-python-"))
        if script is not None:
            (self.home / "script.toml").write_text(script)
            model = "script:script.toml"
        command = [PROGRAM, "serve", "--listen", "127.0.0.1:0", "--journal", journal, "--token", TOKEN, "--model", model]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **(env or {})}
        self._log = open(self.home / "server.log", "ab")
        self._process = subprocess.Popen(command + (args or []), cwd=self.home, env=env, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL)
        assert self._process.stdout is not None
        said = ""
        while (line := self._process.stdout.readline()) != b"":
            said += line.decode()
            if found := re.search(r"127\.0\.0\.1:(\d+)", said):
                self.port = int(found[1])
                return
        raise AssertionError(f"the server ended with {self._process.wait()}: {said}{(self.home / 'server.log').read_text()[-2000:]}")

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def crash(self) -> None:
        """As `kill -9`: the folder stays."""
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._end()
        shutil.rmtree(self.home, ignore_errors=True)

    def _end(self) -> None:
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Proxy:
    """A TCP proxy to `port()`. `cut_after(n)` bounds the bytes that the n-th connection passes to its client."""

    def __init__(self, port: Callable[[], int], cut_after: Callable[[int], int | None] = lambda n: None) -> None:
        self._port = port
        self._cut_after = cut_after
        self._open: set[asyncio.StreamWriter] = set()
        self.accepted = 0

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut_all()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def cut_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit = self._cut_after(self.accepted)
        self.accepted += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port())
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        self._open |= pair
        try:
            await asyncio.gather(_pass(reader, up_writer, None), _pass(up_reader, writer, limit))
        except asyncio.CancelledError:
            pass  # the test ends
        finally:
            self._open -= pair
            for one in pair:
                one.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
    passed = 0
    try:
        while data := await reader.read(65536):
            if limit is not None and passed + len(data) >= limit:
                writer.write(data[: limit - passed])
                await writer.drain()
                break
            passed += len(data)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort() if limit is None else writer.close()
