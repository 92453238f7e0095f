"""The reference agent: URL, ROOM, NAME. Takes a command a line, as JSON, and answers each with one line."""

import asyncio
import base64
import hashlib
import json
import sys

from a2c_smcp.agent import AsyncSMCPAgentClient, DefaultAgentAuthProvider
from a2c_smcp.utils.blob import drain_blob


class Handler:
    def __init__(self):
        self.heard = []

    async def on_computer_enter_office(self, data, client):
        self.heard.append(["enter", data])

    async def on_computer_leave_office(self, data, client):
        self.heard.append(["leave", data])

    async def on_computer_update_config(self, data, client):
        self.heard.append(["config", data])

    async def on_tools_received(self, computer, tools, client):
        self.heard.append(["tools", computer, sorted(tool["name"] for tool in tools)])


async def do(client, room, handler, command):
    what = command["do"]
    if what == "tools":
        got = await client.get_tools_from_computer(command["computer"])
        return sorted(tool["name"] for tool in got["tools"])
    if what == "call":
        result = await client.emit_tool_call(
            command["computer"], command["tool"], command["params"], command["timeout"]
        )
        return result.model_dump(by_alias=True, mode="json")
    if what == "raw":
        return await client.call(
            command["event"], command["data"], namespace="/smcp", timeout=command["timeout"]
        )
    if what == "emit":
        await client.emit(command["event"], command["data"], namespace="/smcp")
        return "sent"
    if what == "list":
        return await client.get_computers_in_office(room)
    if what == "resources":
        return await client.get_resources(command["computer"], command["server"], command.get("cursor"))
    if what == "desktop":
        return await client.get_desktop_from_computer(
            command["computer"], size=command.get("size"), window=command.get("window")
        )
    if what == "skills":
        return await client.get_skills(command["computer"])
    if what == "skill":
        return await client.get_skill(command["computer"], command["name"], command.get("path"))
    if what == "drain":
        data, mime = await drain_blob(
            client._make_blob_call(), command["computer"], command["handle"],
            concurrency=command.get("concurrency", 1),
        )
        return [len(data), hashlib.sha256(data).hexdigest(), mime]
    if what == "put":
        put = await client.put_blob(
            command["computer"], base64.b64decode(command["data"]), name_hint="from-python.bin"
        )
        return [put.landing_path, put.total_size, put.sha256]
    if what == "heard":
        return handler.heard
    if what == "leave":
        await client.leave_office(room, namespace="/smcp")
        return "left"
    raise ValueError(what)


async def answer(client, room, handler, command):
    try:
        value = await do(client, room, handler, command)
        said = {"id": command["id"], "ok": value}
    except Exception as error:
        said = {"id": command["id"], "error": f"{type(error).__name__}: {error}"}
        said["code"] = getattr(error, "code", None)
        said["reason"] = getattr(error, "reason", None)
    print(json.dumps(said), flush=True)


async def main(url, room, name):
    provider = DefaultAgentAuthProvider(agent_id=name, office_id=room, api_key="right")
    handler = Handler()
    client = AsyncSMCPAgentClient(auth_provider=provider, event_handler=handler)
    await client.connect_to_server(url)
    await client.join_office(room, name, namespace="/smcp")
    print(json.dumps({"id": 0, "ok": "joined"}), flush=True)
    loop = asyncio.get_running_loop()
    running = set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = asyncio.create_task(answer(client, room, handler, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    await client.disconnect()


asyncio.run(main(*sys.argv[1:]))
