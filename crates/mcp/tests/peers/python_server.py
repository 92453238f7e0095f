"""A server on the Python SDK of the MCP project, over the transport that the first argument names."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python", instructions="Add before you subtract.")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def wait(ctx: Context) -> str:
    """Waits until it is cancelled."""
    await asyncio.sleep(3600)
    return "never"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no such city")


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
