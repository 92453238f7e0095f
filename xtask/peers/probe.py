"""The failure probes for the peers that are Python; `cargo xtask probes` calls them and judges what they print.

    probe.py a FOLDER AFTER   one message with three calls; the process kills itself right after effect AFTER (0, 1, 2)
    probe.py a FOLDER resume  another process goes on from what is on disk
    probe.py b                a model that repeats one invalid call for ever: how many times was it asked?
    probe.py c TEXT           a tool that raises an exception with this text: what did the model see, what escaped?
"""

import json
import os
import signal
import sys
import time

CAP = 301
"""Where the probe of endless calls gives up on a peer that does not."""

CALLS = 3
QUESTION = "Do the three effects."
FIXABLE = '{"a": "two"}'
"""Arguments that no schema of `add(a: int, b: int)` takes."""


class Capped(BaseException):
    """Ends what would not end by itself. No framework catches it by accident."""


class Stubborn:
    """Counts how often the model was asked."""

    def __init__(self):
        self.asked = 0

    def ask(self):
        self.asked += 1
        if self.asked >= CAP:
            raise Capped


class Ledger:
    """The world outside: a line for each effect, on disk before anything goes on."""

    def __init__(self, folder, after):
        self.path = os.path.join(folder, "ledger")
        self.after = after

    def lines(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path) as file:
            return file.read().split()

    def effect(self, number):
        """Takes place, in order while there is a kill to come, whether or not calls run side by side."""
        if self.after is not None:
            deadline = time.monotonic() + 20
            while (number > self.after or len(self.lines()) < number) and time.monotonic() < deadline:
                time.sleep(0.001)
        with open(self.path, "a") as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        if number == self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"


def main(batch, endless, secret):
    """`batch(folder, ledger, is_resumed)`, `endless(stubborn)`, `secret(text)`; the last returns what the model saw."""
    kind, rest = sys.argv[1], sys.argv[2:]
    if kind == "a":
        folder, after = rest[:2]
        is_resumed = after == "resume"
        batch(folder, Ledger(folder, None if is_resumed else int(after)), is_resumed)
        print(json.dumps({"ended": "answer"}))
    elif kind == "b":
        stubborn = Stubborn()
        try:
            endless(stubborn)
            ended = "answer"
        except Capped:
            ended = "the probe's own cap"
        except Exception as error:
            ended = f"exception {type(error).__name__}"
        print(json.dumps({"model_calls": stubborn.asked, "ended": ended}))
    else:
        seen = []
        escaped = ""
        try:
            secret(rest[0], seen)
        except Exception as error:
            escaped = f"{type(error).__name__}: {error} {error.__cause__ or ''}"
        print(json.dumps({"model_saw": "\n".join(seen), "escaped": escaped}))
