"""Turns on a PostgreSQL server, for the peers that are Python, as `cargo xtask bench postgres --peers` measures them.

The bench starts the program with the address of the database, which is a proxy that counts. The program runs one
conversation to warm up, says `ready`, waits for a line, runs another one and prints the CPU time of a turn in
microseconds. A turn is the one of `measure.py`.
"""

import sys

import measure


def address():
    return sys.argv[1]


def run(conversation):
    """`conversation(number, turns)` runs that many turns of a new conversation, each durable before the next."""
    conversation(1, measure.TURNS)
    for number in range(2, 2 + measure.ROUNDS):
        print("ready", flush=True)
        sys.stdin.readline()
        print(measure.cpu_per_turn(measure.TURNS, lambda: conversation(number, measure.TURNS)), flush=True)
