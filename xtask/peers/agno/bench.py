"""What a turn costs in agno, telemetry off. The conversation is in its database in memory, and all of it is sent."""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import measure
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from fake import Fake, call

calls = 0


def answer(messages):
    """Asks for one call, then answers with what the tool said."""
    global calls
    calls += 1
    last = messages[-1]
    if last.role == "tool":
        return str(last.content)
    return [call("add", '{"a": 2, "b": 3}', f"call-{calls}")]


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def adder():
    options = {"add_history_to_context": True, "num_history_runs": measure.TURNS, "telemetry": False}
    return Agent(model=Fake(answer=answer), tools=[add], db=InMemoryDb(), **options)


conversations = 0


async def turns(agent, count):
    global conversations
    conversations += 1
    session = f"conversation-{conversations}"
    for _ in range(count):
        result = await agent.arun(measure.QUESTION, session_id=session)
        assert result.content == "5", result


def in_memory():
    agent = adder()
    return measure.cpu_per_turn(measure.TURNS, lambda: asyncio.run(turns(agent, measure.TURNS)))


def at_once():
    agent = adder()

    async def together():
        each = measure.TURNS_AT_ONCE
        await asyncio.gather(*(turns(agent, each) for _ in range(measure.AT_ONCE)))

    total = measure.AT_ONCE * measure.TURNS_AT_ONCE
    return measure.cpu_per_turn(total, lambda: asyncio.run(together()))


agents = []


def keep(count):
    """One agent for all; its database keeps the sessions."""
    if not agents:
        agents.append(adder())

    async def sessions():
        for _ in range(count):
            await turns(agents[0], 1)

    asyncio.run(sessions())
    return agents


measure.run(
    {"peer/agno/turn_memory": in_memory, "peer/agno/turn_at_once": at_once},
    "agno",
    first_turn=lambda: keep(1),
    keep=keep,
)
