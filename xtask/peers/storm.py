"""The storms of `cargo xtask bench recovery` for the peers that are Python: all turns at once, in one process.

    storm.py TURNS STEPS SECONDS URL [SECOND_URL]

A turn is the question `turn-17`; with two steps its first answer is a call of `effect(number)`. Turns that have not
ended after SECONDS are counted as failed. The last line of the output is what `crates/testkit/benches/recovery/peer.rs` reads.
"""

import asyncio
import collections
import json
import sys

MODEL = "storm"
KEY = "none"


class Effects:
    """The world outside: how often the tool was called for each turn."""

    def __init__(self):
        self.count = collections.Counter()

    def effect(self, number: int) -> str:
        """Does something that cannot be undone."""
        self.count[str(number)] += 1
        return "done"


def question(number):
    return f"turn-{number}"


def main(prepare, has_second=False):
    """`prepare(urls, has_call, effects)` returns a coroutine function: the number of a turn in, the words out."""
    turns, steps, seconds, *urls = sys.argv[1:]
    urls = [f"{url}/v1" for url in urls]
    effects = Effects()
    if len(urls) > 1 and not has_second:
        print(json.dumps({"supported": False, "finished": 0, "effects": {}, "causes": {}}))
        return
    turn = prepare(urls, int(steps) > 1, effects)
    causes = collections.Counter()

    async def one(number):
        try:
            words = await asyncio.wait_for(turn(number), float(seconds))
        except Exception as error:
            causes[type(error).__name__] += 1
            return False
        if f"turn-{number} is done" not in (words or ""):
            causes["a wrong answer"] += 1
            return False
        return True

    async def every():
        return await asyncio.gather(*(one(number) for number in range(int(turns))))

    finished = sum(asyncio.run(every()))
    print(json.dumps({"supported": True, "finished": finished, "effects": effects.count, "causes": causes}))
