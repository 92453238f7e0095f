"""Asks a Budao server through the MCP project's own client, in the mode that is the second argument."""

import asyncio
import json
import sys

from mcp import Client


async def main(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        tools = await client.list_tools()
        asked = await client.call_tool("ask", {"message": "hello", "id": "python-" + mode})
        run = asked.structured_content["run"]
        status = await client.call_tool("status", {"run": run})
        print(
            json.dumps(
                {
                    "version": str(client.protocol_version),
                    "tools": [tool.name for tool in tools.tools],
                    "answer": asked.content[0].text,
                    "status": status.structured_content["state"],
                }
            )
        )


asyncio.run(main(sys.argv[1], sys.argv[2]))
