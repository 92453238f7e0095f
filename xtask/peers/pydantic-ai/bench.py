"""What a turn costs in Pydantic AI. The conversation is the list of messages a run hands back."""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import measure
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

calls = 0


def fake(messages, info):
    """Asks for one call, then answers with what the tool said."""
    global calls
    calls += 1
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("add", {"a": 2, "b": 3}, f"call-{calls}")])


agent = Agent(FunctionModel(fake))


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def turns(count):
    messages = []
    for _ in range(count):
        result = await agent.run(measure.QUESTION, message_history=messages)
        assert result.output == "5", result
        messages = result.all_messages()
    return messages


def in_memory():
    return measure.cpu_per_turn(measure.TURNS, lambda: asyncio.run(turns(measure.TURNS)))


def at_once():
    async def together():
        await asyncio.gather(*(turns(measure.TURNS_AT_ONCE) for _ in range(measure.AT_ONCE)))

    total = measure.AT_ONCE * measure.TURNS_AT_ONCE
    return measure.cpu_per_turn(total, lambda: asyncio.run(together()))


def keep(count):
    async def conversations():
        return [await turns(1) for _ in range(count)]

    return asyncio.run(conversations())


measure.run(
    {"peer/pydantic-ai/turn_memory": in_memory, "peer/pydantic-ai/turn_at_once": at_once},
    "pydantic-ai",
    first_turn=lambda: keep(1),
    keep=keep,
)
