"""`budao.serve()`: the bundled server for scripts, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

import budao
from harness import PROGRAM


@pytest.fixture(autouse=True)
def _bundled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BUDAO_BINARY", PROGRAM)
    yield


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_script_has_a_server_and_a_session_in_two_lines(tmp_path: Path) -> None:
    with budao.serve(model="demo:fast", folder=tmp_path) as server, server.sync().create() as session:
        assert session.run("say hello").answer == "hello"
        pid = server.pid
        assert server.token not in Path(f"/proc/{pid}/cmdline").read_text(), "other users can read arguments"
    assert not is_running(pid)
    with budao.serve(model="demo:fast", folder=tmp_path) as server, server.sync().attach(session.id) as again:
        assert [event.answer for event in _answers(again)] == ["hello"]


def _answers(session: budao.sync.Session) -> Iterator[budao.FinalAnswer]:
    for event in session.events():
        if isinstance(event, budao.FinalAnswer):
            yield event
            return


def test_the_server_ends_with_a_program_that_is_killed() -> None:
    program = "import budao, time; print(budao.serve(model='demo:fast').pid, flush=True); time.sleep(600)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    assert is_running(pid)
    child.kill()
    child.wait()
    child.stdout.close()
    for _ in range(600):
        if not is_running(pid):
            return
        time.sleep(0.1)
    raise AssertionError("the server outlived its program by a minute")


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(budao.ServerFailed, match="nonsense"):
        budao.serve(model="nonsense:model")


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUDAO_BINARY")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("budao._find._folders", lambda: [])
    with pytest.raises(FileNotFoundError, match="BUDAO_BINARY"):
        budao.find_program()
