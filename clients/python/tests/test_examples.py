"""The examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import IMPATIENT, PROGRAM

HOME = Path(__file__).parents[1]
EXAMPLES = {
    "typo": ["the model was wrong: ERR_VAL_002", "it calls: stock {'unit': 'box', 'item_number': 'B-1042'}", '"count":3'],
    "approval": ["asked: pay 70", "answer: pay answered:\npaid 70", "asked: pay 7000", "paid: [70]"],
    "cancel": ["the function was cancelled", "the run was cancelled"],
    "killed_worker": ["killing the worker in `index all`", "end: index answered:", "killing the worker in `post parcel`", "told: ERR_TOOL_022"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows(name: str) -> None:
    env = {**os.environ, **IMPATIENT, "BUDAO_BINARY": PROGRAM, "PYTHONPATH": str(HOME / "src")}
    done = subprocess.run([sys.executable, "-B", str(HOME / "examples" / f"{name}.py")], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [text for text in EXAMPLES[name] if text not in done.stdout]
    assert not missing, done.stdout
