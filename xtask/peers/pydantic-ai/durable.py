"""A turn in Pydantic AI with DBOS, which keeps its runs in PostgreSQL; the tool is a step, as DBOS recommends."""

import asyncio
import pathlib
import sys

# This file has the name of what it imports.
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

import durable
import measure
from dbos import DBOS
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.durable_exec.dbos import DBOSAgent
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


DBOS(
    config={
        "name": "turns",
        "system_database_url": durable.address(),
        "application_version": "1",
        "log_level": "ERROR",
    }
)
agent = Agent(FunctionModel(fake), name="turns")


@agent.tool_plain
@DBOS.step()
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


kept = DBOSAgent(agent)
DBOS.launch()
loop = asyncio.new_event_loop()


async def turns(count):
    messages = []
    for _ in range(count):
        result = await kept.run(measure.QUESTION, message_history=messages)
        assert result.output == "5", result
        messages = result.all_messages()


durable.run(lambda number, count: loop.run_until_complete(turns(count)))
