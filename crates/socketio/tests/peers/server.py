"""The test server on python-socketio and aiohttp."""

import asyncio
import sys

import socketio
from aiohttp import web

io = socketio.AsyncServer(async_mode="aiohttp", max_http_buffer_size=1_000_000)


def events(namespace):
    def on(handler):
        io.on(handler.__name__, handler, namespace=namespace)

    async def echo(sid, *args):
        return args

    async def swap(sid, one, two):
        return two, {"deep": one}

    async def ask(sid, *args):
        # Answering inside the handler would wait for itself only if events were handled one at a time.
        return await io.call("question", args, to=sid, namespace=namespace, timeout=5)

    async def silent(sid, *args):
        await asyncio.sleep(3600)

    async def later(sid, ms):
        await asyncio.sleep(ms / 1000)
        return "late"

    async def tell(sid, text):
        await io.emit("told", text, to=sid, namespace=namespace)

    async def kick(sid):
        await io.disconnect(sid, namespace=namespace)

    async def drop(sid):
        eio = io.manager.eio_sid_from_sid(sid, namespace)
        await io.eio.disconnect(eio)

    for handler in (echo, swap, ask, silent, later, tell, kick, drop):
        on(handler)


async def unlock(sid, environ, auth):
    if (auth or {}).get("token") != "right":
        raise socketio.exceptions.ConnectionRefusedError("wrong token", {"code": 401})


events("/")
events("/locked")
io.on("connect", unlock, namespace="/locked")


async def main():
    app = web.Application()
    io.attach(app)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("listening", runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
