"""What a turn costs in OpenAI's agents library, tracing off.

In memory the conversation is the list of items a run hands back, durable its SQLite session on a file.
"""

import asyncio
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import measure
from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(True)
calls = 0


@function_tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


class Fake(Model):
    """Asks for one call, then answers with what the tool said."""

    async def get_response(self, system_instructions, input, *rest, **options):
        global calls
        calls += 1
        last = input[-1] if isinstance(input, list) else {}
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(text=str(last["output"]), type="output_text", annotations=[])
            item = ResponseOutputMessage(
                id=f"message-{calls}", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            item = ResponseFunctionToolCall(
                arguments='{"a":2,"b":3}', call_id=f"call-{calls}", name="add", type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *arguments, **options):
        raise NotImplementedError


agent = Agent(name="adder", tools=[add], model=Fake())


async def turns_in_memory(count):
    items = []
    for _ in range(count):
        items.append({"role": "user", "content": measure.QUESTION})
        result = await Runner.run(agent, items)
        assert result.final_output == "5", result
        items = result.to_input_list()


async def turns_durable(session, count):
    for _ in range(count):
        result = await Runner.run(agent, measure.QUESTION, session=session)
        assert result.final_output == "5", result


def in_memory():
    return measure.cpu_per_turn(measure.TURNS, lambda: asyncio.run(turns_in_memory(measure.TURNS)))


def at_once():
    async def together():
        one = turns_in_memory
        await asyncio.gather(*(one(measure.TURNS_AT_ONCE) for _ in range(measure.AT_ONCE)))

    total = measure.AT_ONCE * measure.TURNS_AT_ONCE
    return measure.cpu_per_turn(total, lambda: asyncio.run(together()))


def durable():
    with tempfile.TemporaryDirectory() as folder:
        session = SQLiteSession("conversation", f"{folder}/sessions.db")
        turns = turns_durable(session, measure.TURNS)
        try:
            return measure.cpu_per_turn(measure.TURNS, lambda: asyncio.run(turns))
        finally:
            session.close()


def keep(count):
    """The items of conversations of one turn: all that has to be kept of them."""

    async def conversations():
        kept = []
        for _ in range(count):
            items = [{"role": "user", "content": measure.QUESTION}]
            kept.append((await Runner.run(agent, items)).to_input_list())
        return kept

    return asyncio.run(conversations())


measure.run(
    {
        "peer/openai-agents/turn_memory": in_memory,
        "peer/openai-agents/turn_at_once": at_once,
        "peer/openai-agents/turn_durable": durable,
    },
    "openai-agents",
    first_turn=lambda: keep(1),
    keep=keep,
)
