"""OpenAI's agents library in the storms: streamed runs on chat completions, with its defaults."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import storm
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


def prepare(urls, has_call, effects):
    client = AsyncOpenAI(base_url=urls[0], api_key=storm.KEY)
    tools = [function_tool(effects.effect)] if has_call else []
    model = OpenAIChatCompletionsModel(model=storm.MODEL, openai_client=client)
    agent = Agent(name="storm", tools=tools, model=model)

    async def turn(number):
        run = Runner.run_streamed(agent, storm.question(number))
        async for _ in run.stream_events():
            pass
        return run.final_output

    return turn


storm.main(prepare)
