"""OpenAI's client library in the storms, with its default of two retries and the loop of its documentation."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import json

import storm
from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "effect",
        "description": "Does something that cannot be undone.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
}


def prepare(urls, has_call, effects):
    client = AsyncOpenAI(base_url=urls[0], api_key=storm.KEY)
    tools = {"tools": [TOOL]} if has_call else {}

    async def ask(messages):
        """One streamed answer: its words and its calls."""
        words, calls = "", {}
        stream = await client.chat.completions.create(
            model=storm.MODEL, messages=messages, stream=True, **tools
        )
        async for chunk in stream:
            for choice in chunk.choices:
                words += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] += part.id or ""
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
        return words, list(calls.values())

    async def turn(number):
        messages = [{"role": "user", "content": storm.question(number)}]
        while True:
            words, calls = await ask(messages)
            if not calls:
                return words
            listed = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": listed})
            for call in calls:
                result = effects.effect(**json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    return turn


storm.main(prepare)
