"""An MCP server with a few tools, for computers under test."""

import anyio
from mcp.server.fastmcp import FastMCP

server = FastMCP("tools")


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
def fail() -> str:
    """Always fails, and says too much."""
    raise RuntimeError("cannot reach postgres://admin:hunter2@10.0.0.7:5432/db")


@server.tool()
async def slow(seconds: float) -> str:
    """Takes its time."""
    await anyio.sleep(seconds)
    return "done"


server.run()
