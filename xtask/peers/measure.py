"""CPU time per turn, and lines for `cargo xtask bench`, for the peers that are Python.

A turn is the one of our own bench: the user asks, the model asks for `add(2, 3)`, the tool runs, the model
answers. A conversation keeps all its turns.
"""

import json
import statistics
import sys
import time

QUESTION = "What is 2 + 3?"
TURNS = 20
"""Turns of one conversation."""

AT_ONCE = 128
TURNS_AT_ONCE = 5
"""Conversations side by side, and how many turns each of them has."""

ROUNDS = 5


def cpu_per_turn(turns, work):
    """Microseconds of CPU time for each of `turns` turns of `work`, all threads and the kernel included."""
    before = time.process_time_ns()
    work()
    return (time.process_time_ns() - before) / 1e3 / turns


def wanted(cases):
    """The cases whose name holds the text the program was started with."""
    texts = [text for text in sys.argv[1:] if not text.startswith("-")]
    return {name: case for name, case in cases.items() if not texts or texts[0] in name}


def run(cases):
    """Measures the cases in turns, round after round; the first round warms up and does not count."""
    cases = wanted(cases)
    rounds = {name: [] for name in cases}
    for round in range(ROUNDS + 1):
        for name, case in cases.items():
            value = case()
            if round > 0:
                rounds[name].append(value)
    for name, values in rounds.items():
        values.sort()
        line = {
            "bench": name,
            "value": statistics.median(values),
            "low": values[len(values) // 4],
            "high": values[-1 - len(values) // 4],
            "unit": "µs CPU",
            "better": "lower",
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
