"""Finds the program `budao` that came with this package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find_program() -> Path:
    """The program: `BUDAO_BINARY`, else the one installed beside this package, else the one on the path."""
    named = os.environ.get("BUDAO_BINARY")
    if named:
        return Path(named)
    for folder in _folders():
        path = folder / "budao"
        if path.is_file() and not _is_script(path):
            return path
    found = shutil.which("budao")
    if found is not None and not _is_script(Path(found)):
        return Path(found)
    raise FileNotFoundError(
        "the program `budao` is not in this installation: install a wheel for this platform (`pip install budao`), "
        "or name the program in BUDAO_BINARY"
    )


def _folders() -> list[Path]:
    """The folders into which installers put programs, the likeliest first."""
    here = Path(__file__).resolve().parent.parent
    user = sysconfig.get_path("scripts", scheme=f"{os.name}_user")
    # `pip install --target DIR` puts programs into DIR/bin.
    return [Path(sysconfig.get_path("scripts")), Path(sys.base_prefix) / "bin", here / "bin", Path(user)]


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"
