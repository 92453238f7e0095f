"""What OpenAI's agents library does in the failure probes, with its SQLite session on a file."""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import probe
from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(True)


def says(text):
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return [
        ResponseOutputMessage(
            id="message", content=[part], role="assistant", status="completed", type="message"
        )
    ]


def asks(name, *arguments):
    return [
        ResponseFunctionToolCall(arguments=text, call_id=f"call-{index}", name=name, type="function_call")
        for index, text in enumerate(arguments)
    ]


class Fake(Model):
    """A function of the last item."""

    def __init__(self, answer):
        self.answer = answer

    async def get_response(self, system_instructions, input, *rest, **options):
        last = input[-1] if isinstance(input, list) else {}
        told = str(last["output"]) if last.get("type") == "function_call_output" else None
        return ModelResponse(output=self.answer(told), usage=Usage(), response_id=None)

    def stream_response(self, *arguments, **options):
        raise NotImplementedError


def run(answer, tool, words, session=None):
    agent = Agent(name="probed", tools=[tool], model=Fake(answer))
    return asyncio.run(Runner.run(agent, words, session=session))


def batch(folder, ledger, is_resumed):
    @function_tool
    def effect(number: int) -> str:
        """Does something that cannot be undone."""
        return ledger.effect(number)

    def answer(told):
        if told is not None:
            return says("all done")
        return asks("effect", *(f'{{"number": {number}}}' for number in range(probe.CALLS)))

    session = SQLiteSession("one", f"{folder}/sessions.db")
    # There is nothing to go on from but the session: the user asks to go on.
    run(answer, effect, "Go on." if is_resumed else probe.QUESTION, session)


def endless(stubborn):
    @function_tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    def answer(told):
        stubborn.ask()
        return asks("add", probe.FIXABLE)

    run(answer, add, probe.QUESTION)


def secret(text, seen):
    @function_tool
    def pay(amount: int) -> str:
        """Pays."""
        raise RuntimeError(text)

    def answer(told):
        if told is None:
            return asks("pay", '{"amount": 5}')
        seen.append(told)
        return says("so be it")

    run(answer, pay, probe.QUESTION)


probe.main(batch, endless, secret)
