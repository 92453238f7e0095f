"""Pytest plugin: the SDK's own tests meet another hub, in a process of its own, instead of the SDK's server.

`HUB_COMMAND` is the hub to start, with `{port}` in it; without it the SDK's server runs in a process of its own, which
shows which tests need no access to the server's memory. Tests that look into the server's objects cannot be used.
"""

import asyncio
import contextlib
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

import a2c_smcp.testing
import socketio
import werkzeug.serving
from a2c_smcp import PROTOCOL_VERSION
from a2c_smcp.testing import server as testing

REFERENCE = (
    "import sys, uvicorn; from a2c_smcp.testing import create_local_async_server as hub; "
    "uvicorn.run(hub()[2], host='127.0.0.1', port=int(sys.argv[1]), log_level='error')"
)
START_LIMIT = 20.0


def hub_command(port: int) -> list[str]:
    command = os.environ.get("HUB_COMMAND")
    if command:
        return shlex.split(command.format(port=port))
    return [sys.executable, "-c", REFERENCE, str(port)]


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
        return True
    return False


def start(port: int) -> subprocess.Popen:
    hub = subprocess.Popen(hub_command(port), preexec_fn=die_with_parent, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_LIMIT
    while not listens(port):
        if hub.poll() is not None or time.monotonic() > deadline:
            hub.kill()
            raise RuntimeError(f"the hub did not start: {hub_command(port)}")
        time.sleep(0.01)
    return hub


def stop(hub: subprocess.Popen) -> None:
    hub.kill()
    hub.wait()


class OtherHub:
    """In the place of `UvicornTestServer`."""

    def __init__(self, app: object = None, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.port = port

    async def up(self) -> None:
        self.hub = await asyncio.to_thread(start, self.port)

    async def down(self, force: bool = False) -> None:
        stop(self.hub)


class OtherWsgiHub:
    """In the place of werkzeug's server, which the SDK runs in a process of its own."""

    def __init__(self, host: str, port: int, *_args: object, **_more: object) -> None:
        self.hub = start(port)

    def serve_forever(self) -> None:
        self.hub.wait()

    def shutdown(self) -> None:
        stop(self.hub)


def with_version(connect):
    """Clients without the version in their address get it: the SDK's bare test servers do not ask for it."""

    def wrapped(self, url, *args, **more):
        if "a2c_version" not in url:
            url += ("&" if "?" in url else "?") + f"a2c_version={PROTOCOL_VERSION}"
        return connect(self, url, *args, **more)

    return wrapped


# At import, because pytest imports the tests' own fixtures before it configures plugins.
testing.UvicornTestServer = a2c_smcp.testing.UvicornTestServer = OtherHub
werkzeug.serving.make_server = OtherWsgiHub
for client in (socketio.Client, socketio.AsyncClient):
    client.connect = with_version(client.connect)
