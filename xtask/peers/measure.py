"""What a turn, a kept session and a start cost, as lines for `cargo xtask bench`, for the peers that are Python.

A turn is the one of our own bench: the user asks, the model asks for `add(2, 3)`, the tool runs, the model
answers. A conversation keeps all its turns.
"""

import json
import os
import statistics
import subprocess
import sys
import time

QUESTION = "What is 2 + 3?"
TURNS = 20
"""Turns of one conversation."""

AT_ONCE = 128
TURNS_AT_ONCE = 5
"""Conversations side by side, and how many turns each of them has."""

ROUNDS = 5

SESSIONS = 500
"""Sessions of one turn that are kept, to see what they take."""


def cpu_per_turn(turns, work):
    """Microseconds of CPU time for each of `turns` turns of `work`, all threads and the kernel included."""
    before = time.process_time_ns()
    work()
    return (time.process_time_ns() - before) / 1e3 / turns


def wanted(cases):
    """The cases whose name holds the text the program was started with."""
    texts = [text for text in sys.argv[1:] if not text.startswith("-")]
    return {name: case for name, case in cases.items() if not texts or texts[0] in name}


def run(cases, name, first_turn, keep):
    """Measures the cases in turns, round after round; the first round warms up and does not count.

    `first_turn()` is all a program does from its start to its first answer; `keep(count)` returns what has to be
    kept of `count` sessions of one turn each, one agent for all of them. Both are measured in processes of their own.
    """
    if "--first-turn" in sys.argv:
        first_turn()
        print(time.process_time_ns() / 1e6)
        return
    if "--sessions" in sys.argv:
        kept = keep(SESSIONS // 5)
        before = resident()
        kept = [kept, keep(SESSIONS)]
        print((resident() - before) / SESSIONS / 1024)
        return
    cases = wanted(cases)
    rounds = {name: [] for name in cases}
    for round in range(ROUNDS + 1):
        for case_name, case in cases.items():
            value = case()
            if round > 0:
                rounds[case_name].append(value)
    for case_name, values in rounds.items():
        tell(case_name, values, "µs CPU")
    afresh = {
        f"peer/{name}/turn_start": ("--first-turn", ROUNDS, "ms CPU"),
        f"peer/{name}/turn_session": ("--sessions", 1, "kB"),
    }
    for case_name, (mode, count, unit) in wanted(afresh).items():
        tell(case_name, [this_program(mode) for _ in range(count + 1)][1:], unit)


def tell(name, values, unit):
    values = sorted(values)
    line = {
        "bench": name,
        "value": statistics.median(values),
        "low": values[len(values) // 4],
        "high": values[-1 - len(values) // 4],
        "unit": unit,
        "better": "lower",
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def this_program(mode):
    """The number that this program prints when it is started once more."""
    command = [sys.executable, "-B", sys.argv[0], mode]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.strip().splitlines()[-1])


def resident():
    """Resident bytes of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
