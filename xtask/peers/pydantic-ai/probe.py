"""What Pydantic AI does in the failure probes. It keeps nothing on disk by itself: in probe `a`, DBOS does, in SQLite."""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import probe
from pydantic_ai import Agent, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


def batch(folder, ledger, is_resumed):
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSAgent

    def model(messages, info):
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart("all done")])
        return ModelResponse(parts=[ToolCallPart("effect", {"number": number}, f"call-{number}") for number in range(probe.CALLS)])

    DBOS(config={"name": "probe", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "application_version": "1", "log_level": "ERROR"})
    agent = Agent(FunctionModel(model), name="probe")
    wrap = DBOS.step() if "step" in sys.argv else lambda function: function

    @agent.tool_plain
    @wrap
    async def effect(number: int) -> str:
        """Does something that cannot be undone."""
        return await asyncio.to_thread(ledger.effect, number)

    durable = DBOSAgent(agent)
    DBOS.launch()
    if is_resumed:
        # A launch takes up what another process of the same version left.
        DBOS.retrieve_workflow("one").get_result()
    else:
        with SetWorkflowID("one"):
            durable.run_sync(probe.QUESTION)


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


probe.main(batch, endless, secret)
