"""`python -m budao` runs the program `budao`."""

import os
import sys

from ._find import find_program

if __name__ == "__main__":
    program = str(find_program())
    os.execv(program, [program, *sys.argv[1:]])
