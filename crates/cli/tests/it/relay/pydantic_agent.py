"""A pydantic-ai agent with a scripted model, served over AG-UI. Prints its port.

It counts aloud to the number in the message, with a pause after each word. "weather" makes it call a tool, "delete" one
that needs an approval. Every call and every request is a line of the ledger.
"""

import asyncio
import json
import re
import socket
import sys

import uvicorn
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.routing import Route

LEDGER, PAUSE = sys.argv[1], float(sys.argv[2])


def note(line):
    with open(LEDGER, "a") as file:
        file.write(line + "\n")


async def model(messages, info):
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    last = parts[-1]
    asked = [part.content for part in parts if isinstance(part, UserPromptPart)][-1]
    asked = asked if isinstance(asked, str) else " ".join(str(item) for item in asked)
    if isinstance(last, ToolReturnPart):
        yield f"The tool said: {last.content}"
        return
    for word, tool in (("weather", "weather"), ("delete", "delete_file")):
        if word in asked:
            yield {0: DeltaToolCall(name=tool, json_args=json.dumps({"name": "a"}), tool_call_id=f"{tool}-1")}
            return
    for number in range(1, int(re.search(r"\d+", asked).group()) + 1):
        yield f"{number} "
        await asyncio.sleep(PAUSE)


agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])


@agent.tool_plain
def weather(name: str) -> str:
    note(f"weather {name}")
    return f"sunny in {name}"


@agent.tool_plain(requires_approval=True)
def delete_file(name: str) -> str:
    note(f"delete {name}")
    return f"deleted {name}"


async def run(request):
    body = await request.body()
    note("request " + json.dumps([message["role"] for message in json.loads(body)["messages"]]))
    return await AGUIAdapter.dispatch_request(request, agent=agent)


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/", run, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
