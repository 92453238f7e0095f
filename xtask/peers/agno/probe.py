"""What agno does in the failure probes, with its SQLite database on a file; telemetry off."""

import pathlib
import sys

here = str(pathlib.Path(__file__).resolve().parent)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(here)

import probe

sys.path.append(here)

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from fake import Fake, call


def run(answer, tool, words, **options):
    agent = Agent(model=Fake(answer=answer), tools=[tool], telemetry=False, **options)
    return agent.run(words)


def batch(folder, ledger, is_resumed):
    def effect(number: int) -> str:
        """Does something that cannot be undone."""
        return ledger.effect(number)

    def answer(messages):
        if messages[-1].role == "tool":
            return "all done"
        return [call("effect", f'{{"number": {number}}}', f"call-{number}") for number in range(probe.CALLS)]

    db = SqliteDb(db_file=f"{folder}/sessions.db")
    # There is nothing to go on from but the session: the user asks to go on.
    words = "Go on." if is_resumed else probe.QUESTION
    run(answer, effect, words, db=db, session_id="one", add_history_to_context=True)


def endless(stubborn):
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    def answer(messages):
        stubborn.ask()
        return [call("add", probe.FIXABLE, f"call-{stubborn.asked}")]

    run(answer, add, probe.QUESTION)


def secret(text, seen):
    def pay(amount: int) -> str:
        """Pays."""
        raise RuntimeError(text)

    def answer(messages):
        last = messages[-1]
        if last.role != "tool":
            return [call("pay", '{"amount": 5}', "call-1")]
        seen.append(str(last.content))
        return "so be it"

    run(answer, pay, probe.QUESTION)


probe.main(batch, endless, secret)
