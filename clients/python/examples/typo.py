"""A tool with a schema that is easy to get wrong: the model misspells a key, reads the error and corrects itself."""

import enum
from typing import Annotated

import budao


class Unit(enum.Enum):
    PIECE = "piece"
    BOX = "box"


@budao.tool(read_only=True)
def stock(item_number: Annotated[str, "Such as B-1042."], unit: Unit = Unit.PIECE) -> dict[str, object]:
    """Counts the pieces or boxes of an item in the warehouse."""
    return {"item_number": item_number, "unit": unit, "count": 36 if unit is Unit.PIECE else 3}


with budao.serve() as server, server.sync().worker([stock]), server.sync().create() as session:
    for event in session.stream("call stock with item_number=B-1042, unit=box"):
        if isinstance(event, budao.ToolResult) and event.fault is not None:
            print("the model was wrong:", event.fault.code, event.fault.message)
        elif isinstance(event, budao.ToolCall):
            print("it calls:", event.tool, dict(event.arguments))
        elif isinstance(event, budao.FinalAnswer):
            print("it answers:", event.answer)
