"""An agno agent with a scripted model, served over AG-UI. Prints its port.

It counts aloud to the number in the message, with a pause after each word. Every request of the model is a line of the ledger.
"""

import asyncio
import re
import socket
import sys

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.agui import AGUI

LEDGER, PAUSE = sys.argv[1], float(sys.argv[2])


class Scripted(Model):
    """Counts; the network is never used."""

    def __init__(self):
        super().__init__(id="scripted", name="scripted", provider="test")

    async def ainvoke_stream(self, messages, *args, **kwargs):
        asked = [message for message in messages if message.role == "user"][-1].content
        with open(LEDGER, "a") as file:
            file.write("request\n")
        for number in range(1, int(re.search(r"\d+", str(asked)).group()) + 1):
            yield ModelResponse(role="assistant", content=f"{number} ")
            await asyncio.sleep(PAUSE)

    async def ainvoke(self, messages, *args, **kwargs):
        raise NotImplementedError

    def invoke(self, *args, **kwargs):
        raise NotImplementedError

    def invoke_stream(self, *args, **kwargs):
        raise NotImplementedError

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response, **kwargs):
        return response


if __name__ == "__main__":
    agent = Agent(id="counter", model=Scripted(), telemetry=False)
    system = AgentOS(agents=[agent], interfaces=[AGUI(agent=agent)], telemetry=False)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(system.get_app(), log_level="error")).run(sockets=[listener])
