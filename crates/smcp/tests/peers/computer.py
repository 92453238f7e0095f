"""The reference computer: URL, ROOM, NAME, TOOLS. Says `joined`, and lives until its input ends."""

import asyncio
import sys
import tempfile
from pathlib import Path

from a2c_smcp.computer.computer import Computer
from a2c_smcp.computer.mcp_clients.model import StdioServerConfig
from a2c_smcp.computer.socketio.client import SMCPComputerClient
from mcp import StdioServerParameters


async def main(url, room, name, tools):
    config = StdioServerConfig(
        name="tools",
        disabled=False,
        forbidden_tools=[],
        tool_meta={},
        default_tool_meta={"auto_apply": True},
        server_parameters=StdioServerParameters(command=sys.executable, args=[tools]),
    )
    home = Path(tempfile.mkdtemp())
    computer = Computer(
        name=name, mcp_servers={config}, blob_cache_root=home, skill_home=home, project_root=home
    )
    await computer.boot_up()
    client = SMCPComputerClient(computer=computer)
    await client.connect(url, auth={"token": "right"}, namespaces=["/smcp"])
    await client.join_office(room)
    print("joined", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() == "leave":
            await client.leave_office(room)
            print("left", flush=True)
        if line.strip() == "join":
            await client.join_office(room)
            print("joined", flush=True)
    await client.disconnect()
    await computer.shutdown()


asyncio.run(main(*sys.argv[1:]))
