"""A PostgreSQL server of a test's own: unprivileged, in a temporary directory, gone with the test."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

_READY = "database system is ready to accept connections"


class PostgresServer:
    """A server with one database, `postgres`, for clients on loopback."""

    def __init__(self) -> None:
        self._programs = _installed()
        self._home = Path(tempfile.mkdtemp(prefix="budao-pg"))
        self._options: dict[str, Any] = {"cwd": self._home, "env": {"PATH": "/usr/bin:/bin"}}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self._home, nobody.pw_uid, nobody.pw_gid)
            self._options |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        data = self._home / "data"
        initdb = [self._programs / "initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", "postgres", "--pgdata", data]
        subprocess.run(list(map(str, initdb)), check=True, capture_output=True, **self._options)
        self._port = _free_port()
        command = [self._programs / "postgres", "-D", data, "-p", str(self._port), "-k", self._home, "-h", "127.0.0.1"]
        self._process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **self._options)
        assert self._process.stderr is not None
        said = ""
        while (line := self._process.stderr.readline()) != "":
            said += line
            if _READY in line:
                return
        raise AssertionError(f"PostgreSQL ended with {self._process.wait()}: {said[-2000:]}")

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self._port}/postgres"

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.stderr is not None
        self._process.stderr.read()
        self._process.wait(60)
        shutil.rmtree(self._home, ignore_errors=True)


def _free_port() -> int:
    """A port below those that the system gives to whoever names none, so that nobody gets it before the server does."""
    for port in random.sample(range(16_000, 32_000), 1_000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def _installed() -> Path:
    """The folder of the programs, from the path or as Debian has them. Without them the test is skipped, in CI it fails."""
    found = shutil.which("postgres")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found is None and not debian:
        missing = "PostgreSQL is missing; install its server, for example `apt install postgresql`"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    return Path(found).parent if found is not None else debian[-1].parent
