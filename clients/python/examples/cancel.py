"""A long call that the user cancels: the cancellation reaches the function."""

import asyncio

import budao


@budao.tool(read_only=True, deadline=300)
async def search(words: str, context: budao.ToolContext) -> str:
    """Searches a large archive."""
    try:
        for shelf in range(1000):
            context.progress(f"shelf {shelf}\n")
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        print("the function was cancelled")
        raise
    return f"nothing about {words}"


async def main() -> None:
    with budao.serve() as server:
        client = server.client()
        async with budao.Worker(client, [search]), await client.create() as session:
            async for event in session.stream("call search with words=tumbler"):
                if isinstance(event, budao.ToolOutput):
                    await session.cancel("that takes too long")
                elif isinstance(event, budao.Interruption):
                    print("the run was cancelled")


asyncio.run(main())
