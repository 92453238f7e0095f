"""Functions as tools: the schema of a signature, the arguments of a call, the errors."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import json
from typing import Annotated, Any, Literal, Optional, TypedDict

import pydantic
import pytest

from budao import ToolContext, ToolError, tool
from budao._schema import json_text


class Unit(enum.Enum):
    PIECE = "piece"
    BOX = "box"


@dataclasses.dataclass
class Place:
    """A place in the warehouse."""

    aisle: int
    shelf: Optional[str] = None


class Person(TypedDict, total=False):
    name: str


class Order(pydantic.BaseModel):
    article: str = pydantic.Field(description="The article number.", pattern="^[A-Z]-[0-9]+$")
    count: int = pydantic.Field(ge=1)


def context() -> ToolContext:
    return ToolContext("s", "call_1", 1, "s.call_1", None)


def call(one: Any, arguments: dict[str, Any]) -> Any:
    return one.bind(one.function, arguments, context())()


def test_the_signature_and_the_docstring_are_the_schema() -> None:
    @tool(read_only=True, deadline=1.5)
    def stock(item: str, unit: Unit = Unit.PIECE, *, limit: Annotated[int, "At most this many."] = 3) -> int:
        """Counts the pieces of an item.

        Only what is on the shelves counts.

        Args:
            item: The article number,
                such as B-1042.
            unit (Unit): What to count.

        Returns:
            The number.
        """
        return limit

    assert stock.offer() == {
        "name": "stock",
        "description": "Counts the pieces of an item.\n\nOnly what is on the shelves counts.",
        "parameters": {
            "type": "object",
            "properties": {
                "item": {"type": "string", "description": "The article number, such as B-1042."},
                "unit": {"enum": ["piece", "box"], "description": "What to count.", "default": "piece"},
                "limit": {"type": "integer", "description": "At most this many.", "default": 3},
            },
            "required": ["item"],
            "additionalProperties": False,
        },
        "read_only": True,
        "deadline_ms": 1500,
    }
    assert stock("B-1") == 3, "the tool is still a function"


def test_types_become_schemas_and_json_becomes_values() -> None:
    @tool
    def every(
        flags: list[bool],
        sizes: dict[str, float],
        pair: tuple[int, str],
        place: Place,
        person: Person,
        mode: Literal["fast", 1],
        when: datetime.date,
        names: set[str],
        maybe: Optional[Place] = None,
        anything: Any = None,
    ) -> list[Any]:
        return [flags, sizes, pair, place, person, mode, when, names, maybe, anything]

    properties = every.parameters["properties"]
    assert properties["sizes"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["pair"] == {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}
    assert properties["place"] == {"$ref": "#/$defs/Place"}
    assert properties["maybe"] == {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None}
    assert every.parameters["$defs"]["Place"] == {
        "description": "A place in the warehouse.",
        "type": "object",
        "properties": {"aisle": {"type": "integer"}, "shelf": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["aisle"],
        "additionalProperties": False,
    }
    values = call(every, {
        "flags": [True], "sizes": {"a": 1}, "pair": [1, "b"], "place": {"aisle": 7}, "person": {"name": "Ada"}, "mode": 1,
        "when": "2026-11-18", "names": ["x", "x"], "maybe": {"aisle": 8, "shelf": "top"},
    })  # fmt: skip
    assert values == [
        [True], {"a": 1.0}, (1, "b"), Place(7), {"name": "Ada"}, 1, datetime.date(2026, 11, 18), {"x"}, Place(8, "top"), None,
    ]  # fmt: skip
    assert json.loads(json_text(values[3])) == {"aisle": 7, "shelf": None}


def test_a_pydantic_model_is_described_and_validated() -> None:
    @tool
    def order(what: Order) -> str:
        return f"{what.count} of {what.article}"

    assert order.parameters["properties"]["what"]["properties"]["article"]["description"] == "The article number."
    assert call(order, {"what": {"article": "B-1", "count": 2}}) == "2 of B-1"
    with pytest.raises(ToolError) as caught:
        call(order, {"what": {"article": "B-1", "count": 0}})
    assert "count" in caught.value.message and caught.value.progress == "not_begun" and caught.value.advice


def test_a_context_is_passed_and_never_shown_to_the_model() -> None:
    @tool
    async def keyed(context: ToolContext, n: int) -> str:
        """Doubles. :param n: A number."""
        return context.idempotency_key

    assert list(keyed.parameters["properties"]) == ["n"]
    assert asyncio.run(call(keyed, {"n": 1})) == "s.call_1"


def test_docstrings_of_three_styles_describe_parameters() -> None:
    @tool
    def sphinx(a: int) -> int:
        """Adds.

        :param a: The first.
        :returns: It.
        """
        return a

    @tool
    def numpy(a: int, b: int) -> int:
        """Adds.

        Parameters
        ----------
        a : int
            The first.
        b
            The second.

        Returns
        -------
        int
        """
        return a + b

    assert (sphinx.description, sphinx.parameters["properties"]["a"]["description"]) == ("Adds.", "The first.")
    described = {name: schema["description"] for name, schema in numpy.parameters["properties"].items()}
    assert (numpy.description, described) == ("Adds.", {"a": "The first.", "b": "The second."})


def test_what_cannot_be_described_is_refused_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match="schema="):

        @tool
        def many(*values: int) -> None: ...

    with pytest.raises(TypeError, match="bytes"):

        @tool
        def raw(data: bytes) -> None: ...

    with pytest.raises(ValueError, match="name"):
        tool(name="two words")(lambda: None)
    assert tool(schema={"type": "object"}, name="loose")(lambda **anything: anything).parameters == {"type": "object"}


def test_a_hand_written_schema_passes_everything() -> None:
    @tool(schema={"type": "object", "properties": {"a": {}, "b": {}}})
    def loose(a: int, **more: Any) -> Any:
        return a, more

    assert call(loose, {"a": 1, "b": 2}) == (1, {"b": 2})
