"""The reference hub, open to everybody. Says `listening PORT`, and lives until its input ends."""

import asyncio
import sys

import uvicorn
from a2c_smcp.testing.server import create_local_async_server, pick_free_port


async def main():
    _, _, app = create_local_async_server()
    port = pick_free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print("listening", port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.should_exit = True
    server.force_exit = True
    await serving


asyncio.run(main())
