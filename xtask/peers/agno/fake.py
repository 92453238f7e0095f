"""A model for agno that is a function of the messages."""

from dataclasses import dataclass
from typing import Any, Callable

from agno.models.base import Model
from agno.models.response import ModelResponse


def call(name, arguments, id):
    """A call as agno's models hand it over."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@dataclass
class Fake(Model):
    id: str = "fake"
    name: str = "Fake"
    provider: str = "fake"
    answer: Callable[[list], Any] = None
    """Text, or a list of calls, from the messages."""

    def invoke(self, messages, *rest, **options):
        said = self.answer(messages)
        if isinstance(said, str):
            return ModelResponse(role="assistant", content=said)
        return ModelResponse(role="assistant", tool_calls=said)

    async def ainvoke(self, messages, *rest, **options):
        return self.invoke(messages)

    def invoke_stream(self, *rest, **options):
        raise NotImplementedError

    def ainvoke_stream(self, *rest, **options):
        raise NotImplementedError

    def _parse_provider_response(self, response, **options):
        return response

    def _parse_provider_response_delta(self, response):
        return response
