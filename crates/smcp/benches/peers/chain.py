"""The reference agent calls the reference computer's echo: URL, CALLS. Says the seconds it took, on the clock and of CPU."""

import asyncio
import json
import sys
import time

from a2c_smcp.agent import AsyncSMCPAgentClient, DefaultAgentAuthProvider


async def main(url, calls):
    provider = DefaultAgentAuthProvider(agent_id="bot", office_id="a", api_key="right")
    client = AsyncSMCPAgentClient(auth_provider=provider)
    await client.connect_to_server(url)
    await client.join_office("a", "bot", namespace="/smcp")
    for _ in range(20):
        await client.emit_tool_call("pc", "tools__echo", {"text": "x"}, 20)
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(calls):
        result = await client.emit_tool_call("pc", "tools__echo", {"text": str(number)}, 20)
        assert not result.isError and result.content[0].text == str(number), result
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps(took), flush=True)
    await client.disconnect()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
