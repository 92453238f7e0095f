"""What Pydantic AI does in the failure probes. It keeps nothing on disk by itself, so there is no probe `a`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import probe
from pydantic_ai import Agent, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


def endless(stubborn):
    def model(messages, info):
        stubborn.ask()
        return ModelResponse(parts=[ToolCallPart("add", probe.FIXABLE, f"call-{stubborn.asked}")])

    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    agent.run_sync(probe.QUESTION)


def secret(text, seen):
    def model(messages, info):
        last = messages[-1].parts[-1]
        if isinstance(last, (ToolReturnPart, RetryPromptPart)):
            seen.append(str(last.content))
            return ModelResponse(parts=[TextPart("so be it")])
        return ModelResponse(parts=[ToolCallPart("pay", {"amount": 5}, "call-1")])

    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    def pay(amount: int) -> str:
        """Pays."""
        raise RuntimeError(text)

    agent.run_sync(probe.QUESTION)


probe.main(None, endless, secret)
