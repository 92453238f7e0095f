"""A worker for the kills test: `python worker.py URL LEDGER ID`. It offers what worker.mjs offers, so both are one worker."""

import os
import sys
import time

from budao import Client, ToolContext, Worker, tool


def effect(n: int, context: ToolContext) -> int:
    key = f"{context.idempotency_key} {context.attempt}"
    with open(sys.argv[2], "a") as ledger:
        ledger.write(f"begin {key}\n")
    time.sleep(n % 40 / 1000)
    with open(sys.argv[2], "a") as ledger:
        ledger.write(f"end {key}\n")
    return n


@tool
def pay(n: int, context: ToolContext) -> int:
    """Pays."""
    return effect(n, context)


@tool(idempotent=True)
def note(n: int, context: ToolContext) -> int:
    """Notes."""
    return effect(n, context)


client = Client(sys.argv[1], token=os.environ["TOKEN"], retry_base=0.01, retry_max=0.1)
worker = Worker(client, [pay, note], name="money")
worker.worker_id = sys.argv[3]
worker.run(ready=lambda: print("ready", flush=True))
