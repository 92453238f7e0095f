"""JSON Schema from Python types, and Python values from JSON that fits the schema."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import json
import math
import pathlib
import re
import sys
import types
import typing
import uuid
from collections import abc
from typing import Any, Callable, Iterator, Mapping, Union

#: Text formats: the JSON Schema `format`, and the function that reads the text.
_FORMATS: dict[type, tuple[str | None, Callable[[str], Any]]] = {
    datetime.datetime: ("date-time", lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))),
    datetime.date: ("date", datetime.date.fromisoformat),
    uuid.UUID: ("uuid", uuid.UUID),
    pathlib.Path: (None, pathlib.Path),
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_LISTS = (list, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection, abc.Set)


class SchemaBuilder:
    """Collects the `$defs` of one tool while it translates types."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type. Raises `TypeError` for a type without one."""
        if hint is Any or hint is inspect.Parameter.empty or hint is object:
            return {}
        if hint is None:
            return {"type": "null"}
        if isinstance(hint, type) and hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if isinstance(hint, typing.NewType):
            return self.of(hint.__supertype__)
        if is_pydantic(hint):
            return self._pydantic(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return {"enum": [member.value for member in hint]}
        if isinstance(hint, type) and hint in _FORMATS:
            name = _FORMATS[hint][0]
            return {"type": "string", "format": name} if name else {"type": "string"}
        if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
            return self._record(hint)
        return self._generic(hint)

    def _generic(self, hint: Any) -> dict[str, Any]:
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin is typing.Annotated:
            return {**self.of(args[0]), **_annotations(args[1:])}
        if origin is typing.Literal:
            return {"enum": list(args)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(arg) for arg in args]}
        if origin is tuple and args and args[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(arg) for arg in args], "minItems": len(args), "maxItems": len(args)}
        if origin in _LISTS or origin is tuple:
            return {"type": "array", "items": self.of(args[0])} if args else {"type": "array"}
        if origin in (dict, abc.Mapping, abc.MutableMapping):
            return {"type": "object", "additionalProperties": self.of(args[1])} if args else {"type": "object"}
        raise TypeError(f"{hint!r} has no JSON Schema; use another type, or pass `schema=` to @tool")

    def _record(self, hint: Any) -> dict[str, Any]:
        """A dataclass or TypedDict, as a definition of its own, so that it may contain itself."""
        name = hint.__name__
        if name not in self.defs:
            self.defs[name] = {}
            hints = typing.get_type_hints(hint, include_extras=True)
            properties = {key: self.of(_without_marks(value)) for key, value in hints.items()}
            described = {"description": inspect.getdoc(hint)} if _has_own_doc(hint) else {}
            required = [key for key in hints if key in _required_keys(hint)]
            self.defs[name] = {**described, "type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"$ref": f"#/$defs/{name}"}

    def _pydantic(self, hint: Any) -> dict[str, Any]:
        schema: dict[str, Any] = hint.model_json_schema(ref_template="#/$defs/{model}")
        for name, definition in schema.pop("$defs", {}).items():
            if self.defs.setdefault(name, definition) != definition:
                raise TypeError(f"two models are called {name}")
        return schema


def is_pydantic(hint: Any) -> bool:
    """True for a pydantic model. The package is used only if the program itself has loaded it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(hint, type) and issubclass(hint, pydantic.BaseModel)


def decode(hint: Any, value: Any) -> Any:
    """The Python value of a JSON value that fits the schema of `hint`. Raises `ValueError` if it does not fit."""
    if isinstance(hint, typing.NewType):
        return decode(hint.__supertype__, value)
    if is_pydantic(hint):
        return hint.model_validate(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if isinstance(hint, type) and hint in _FORMATS:
        return _FORMATS[hint][1](value)
    if hint is float and isinstance(value, int):
        return float(value)
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {key: decode(_without_marks(hints[key]), inner) for key, inner in value.items() if key in hints}
        return typing.cast(Any, hint)(**fields)
    return _decode_generic(hint, value)


def _decode_generic(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return decode(args[0], value)
    if origin in (Union, types.UnionType):
        return _decode_union(args, value)
    if origin is tuple and isinstance(value, list):
        inner = args[:1] * len(value) if args[1:] == (Ellipsis,) else args
        return tuple(decode(arg, item) for arg, item in zip(inner, value)) if args else tuple(value)
    if origin in _LISTS and isinstance(value, list):
        items = [decode(args[0], item) for item in value] if args else value
        return items if origin not in (set, frozenset, abc.Set) else (frozenset if origin is frozenset else set)(items)
    if origin in (dict, abc.Mapping, abc.MutableMapping) and args and isinstance(value, dict):
        return {key: decode(args[1], inner) for key, inner in value.items()}
    return value


def _decode_union(args: tuple[Any, ...], value: Any) -> Any:
    """The first alternative that fits."""
    for arg in args:
        kind = _PLAIN.get(arg) if isinstance(arg, type) else None
        if kind is not None and type(value) is arg:
            return value
    for arg in args:
        try:
            if not (isinstance(arg, type) and arg in _PLAIN):
                return decode(arg, value)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return value


def encode(value: Any) -> Any:
    """A value that is not JSON by itself, as JSON. For `json.dumps(default=encode)`."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, abc.Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def default_of(value: Any) -> dict[str, Any]:
    """The `default` of a parameter, if it is JSON."""
    try:
        return {"default": json.loads(json.dumps(value, default=encode))}
    except (TypeError, ValueError):
        return {}


def docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description of a function and of its parameters: Google style, NumPy style or `:param name:`."""
    lines = (inspect.getdoc(function) or "").splitlines()
    described: dict[str, str] = {}
    kept: list[str] = []
    section, name = "", ""
    for index, line in enumerate(lines):
        text = line.strip()
        after = lines[index + 1].strip() if index + 1 < len(lines) else ""
        header = re.fullmatch(r"(Args|Arguments|Parameters|Params|Returns|Yields|Raises|Examples?|Notes?):?", text)
        if header and (text.endswith(":") or set(after) == {"-"}):
            section, name = header[1], ""
        elif field := re.fullmatch(r":param(?: \w+)? (\w+):\s*(.*)", text):
            section, name = "field", field[1]
            described[name] = field[2]
        elif re.match(r":(returns?|rtype|raises?|type)\b", text):
            section, name = "Returns", ""
        elif not section:
            kept.append(line)
        elif section in ("Args", "Arguments", "Parameters", "Params", "field"):
            name = _parameter_line(line, text, name, described)
    return "\n".join(kept).strip(), {key: value.strip() for key, value in described.items()}


def _parameter_line(line: str, text: str, name: str, described: dict[str, str]) -> str:
    """Reads one line of a parameter section, and returns the parameter that the next line may continue."""
    google = re.fullmatch(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", text)
    numpy = re.fullmatch(r"(\w+)(?: : .*)?", text)
    indent = len(line) - len(line.lstrip())
    if numpy and indent == 0 and text:
        described[numpy[1]] = ""
        return numpy[1]
    if google and 0 < indent <= 4:
        described[google[1]] = google[2]
        return google[1]
    if name and text and set(text) != {"-"}:
        described[name] = f"{described[name]} {text}"
    return name


def _annotations(marks: tuple[Any, ...]) -> dict[str, Any]:
    """Descriptions and bounds from `Annotated`: a text, or an object with `description`, `ge`, `le` …"""
    found: dict[str, Any] = {}
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "min_length": "minLength", "max_length": "maxLength"}
    for mark in marks:
        if isinstance(mark, str):
            found["description"] = mark
            continue
        if isinstance(getattr(mark, "description", None), str):
            found["description"] = mark.description
        for part in (mark, *getattr(mark, "metadata", ())):
            found.update({key: getattr(part, name) for name, key in names.items() if getattr(part, name, None) is not None})
    return found


def _required_keys(hint: Any) -> Any:
    if typing.is_typeddict(hint):
        return hint.__required_keys__
    empty = dataclasses.MISSING
    return {item.name for item in dataclasses.fields(hint) if item.default is empty and item.default_factory is empty}


def _without_marks(hint: Any) -> Any:
    """The type inside `Required` and `NotRequired`."""
    names = ("Required", "NotRequired", "ReadOnly")
    while getattr(typing.get_origin(hint), "_name", None) in names:
        hint = typing.get_args(hint)[0]
    return hint


def _has_own_doc(hint: Any) -> bool:
    # A dataclass without a docstring gets its signature as one.
    doc = hint.__dict__.get("__doc__")
    return bool(doc) and not str(doc).startswith(f"{hint.__name__}(")


class NotFinite(ValueError):
    """A NaN or an infinity, which JSON cannot express; the text names its place."""


def json_text(value: Any) -> str:
    text = json.dumps(value, default=encode, ensure_ascii=False, separators=(",", ":"))
    # Python writes these numbers bare. A text that contains such a word may be innocent, so the parser decides.
    if any(word in text for word in ("NaN", "Infinity")):
        for part, pointer, number in _not_finite(json.loads(text)):
            raise NotFinite(f"{part} has {number} at {pointer or '/'}, which JSON cannot express")
    return text


def _not_finite(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """The numbers that JSON cannot express: the key of the top object, the pointer below it, and the number."""
    if isinstance(value, float) and not math.isfinite(value):
        number = "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        escaped = (key.replace("~", "~0").replace("/", "~1") for key in place[1:])
        yield (place[0] if place else "value", "".join(f"/{key}" for key in escaped), number)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _not_finite(part, (*place, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _not_finite(part, (*place, str(index)))


Schema = Mapping[str, Any]
