"""Pydantic AI in the storms: streamed runs on its OpenAI provider, with its defaults; two endpoints as its fallback model."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import storm
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def prepare(urls, has_call, effects):
    models = [
        OpenAIChatModel(storm.MODEL, provider=OpenAIProvider(base_url=url, api_key=storm.KEY))
        for url in urls
    ]
    model = models[0] if len(models) == 1 else FallbackModel(*models)
    agent = Agent(model, tools=[effects.effect] if has_call else [])

    async def turn(number):
        async with agent.run_stream(storm.question(number)) as run:
            return await run.get_output()

    return turn


storm.main(prepare, has_second=True)
