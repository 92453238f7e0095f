"""Functions as tools: `@tool`, the error that an author writes for the model, and the context of a call."""

from __future__ import annotations

import inspect
import re
import threading
import typing
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, Mapping, ParamSpec, Sequence, TypeVar, overload

from ._schema import Schema, SchemaBuilder, decode, default_of, docstring

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolError(Exception):
    """A failure that the model should read: what happened, and in `advice` what it can do about it.

    `progress` says how far the call came: `not_begun`, `ended` (it failed as the message says), `unconfirmed` (it may
    have happened) or `done`. The traceback reaches the operator only.
    """

    def __init__(self, message: str, *, advice: str | Sequence[str] = (), data: Any = None, progress: str = "ended") -> None:
        super().__init__(message)
        if progress not in ("not_begun", "ended", "unconfirmed", "done"):
            raise ValueError(f"unknown progress: {progress!r}")
        self.message = message
        self.advice = [advice] if isinstance(advice, str) else list(advice)
        self.data = data
        self.progress = progress


class CallCancelled(Exception):
    """Raised by `ToolContext.check` in a function that runs in a thread and whose call was cancelled."""


@dataclass
class ToolContext:
    """What a function may know of its call: declare a parameter of this type. The model does not see it."""

    session_id: str
    call_id: str
    attempt: int
    #: Equal for every attempt of one call: pass it to a service that accepts such keys.
    idempotency_key: str
    #: The W3C trace of the call.
    traceparent: str | None
    #: The time of `time.monotonic()` at which the server ends the call; `None` without a limit.
    deadline: float | None = None
    #: Set when the call is cancelled.
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    _report: Callable[[str], None] = field(default=lambda text: None, repr=False)

    def progress(self, text: str) -> None:
        """Shows text to people while the call runs. Bounded: what is too much is dropped."""
        self._report(text)

    def check(self) -> None:
        """Raises `CallCancelled` if the call was cancelled. For functions that run in a thread."""
        if self.cancelled.is_set():
            raise CallCancelled("the call was cancelled")


@dataclass(frozen=True)
class Reconciliation:
    """What a tool found out about a call whose outcome was unknown."""

    verdict: str
    result: Any = None


DID_NOT_HAPPEN = Reconciliation("did_not_happen")
CANNOT_TELL = Reconciliation("cannot_tell")


def happened(result: Any) -> Reconciliation:
    """The call took effect, and this is its result."""
    return Reconciliation("happened", result)


class Tool(Generic[P, R]):
    """A function that an agent may call. Calling the tool calls the function."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        self.function = function
        self.name: str = options["name"] or function.__name__
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a tool's name has 1 to 64 letters, digits, `_` or `-`: {self.name!r}")
        self._hints = _hints(function)
        text, described = docstring(function)
        self.description: str = options["description"] or text or self.name
        self.parameters: Schema = options["schema"] or self._schema(described)
        self.read_only: bool = options["read_only"]
        self.idempotent: bool = options["idempotent"]
        self.confirm: bool = options["confirm"]
        self.deadline: float | None = options["deadline"]
        self.wait: float | None = options["wait"]
        self.reconcile: Callable[..., Any] | None = options["reconcile"]
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def offer(self) -> dict[str, Any]:
        """The tool as a worker offers it."""
        flags = {name: True for name in ("read_only", "idempotent", "confirm") if getattr(self, name)}
        if self.reconcile is not None:
            flags["reconcile"] = True
        times = {"deadline_ms": self.deadline, "wait_ms": self.wait}
        limits = {name: int(seconds * 1000) for name, seconds in times.items() if seconds is not None}
        return {"name": self.name, "description": self.description, "parameters": self.parameters, **flags, **limits}

    def bind(self, function: Callable[..., Any], arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """The call of `function` with JSON arguments. Raises `ToolError` if they do not fit the function's types."""
        hints = self._hints if function is self.function else _hints(function)
        values: dict[str, Any] = {}
        for name, hint in hints.items():
            if hint is ToolContext:
                values[name] = context
            elif name in arguments:
                values[name] = self._decode(name, hint, arguments[name])
        if "" in hints:  # a hand-written schema and a function that takes everything
            values.update({key: value for key, value in arguments.items() if key not in values})
        values.pop("", None)
        return lambda: function(**values)

    def _decode(self, name: str, hint: Any, value: Any) -> Any:
        try:
            return decode(hint, value)
        except Exception as error:
            advice = f"Correct `{name}` and call {self.name} again"
            raise ToolError(f"Invalid value of `{name}`: {_reason(error)}", advice=advice, progress="not_begun") from error

    def _schema(self, described: Mapping[str, str]) -> Schema:
        builder = SchemaBuilder()
        properties: dict[str, Any] = {}
        required: list[str] = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"{self.name}: the parameter `{parameter}` cannot be described; pass `schema=` to @tool")
            hint = self._hints[name]
            if hint is ToolContext:
                continue
            schema = builder.of(hint)
            if name in described and "description" not in schema:
                schema = {**schema, "description": described[name]}
            if parameter.default is parameter.empty:
                required.append(name)
            else:
                schema = {**schema, **default_of(parameter.default)}
            properties[name] = schema
        defs = {"$defs": builder.defs} if builder.defs else {}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **defs}


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    read_only: bool = ...,
    idempotent: bool = ...,
    confirm: bool = ...,
    deadline: float | None = ...,
    wait: float | None = ...,
    schema: Schema | None = ...,
    reconcile: Callable[..., Any] | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    confirm: bool = False,
    deadline: float | None = None,
    wait: float | None = None,
    schema: Schema | None = None,
    reconcile: Callable[..., Any] | None = None,
) -> Any:
    """Makes a tool of a function: its signature is the schema, its docstring the description.

    `read_only` and `idempotent` are promises: the runtime repeats such calls without a question. `confirm` asks a person
    first. `deadline` (seconds) bounds a call, `wait` the time that a call waits for a worker. `reconcile` is a function
    with the same parameters that finds out what became of a call: it returns `happened(result)`, `DID_NOT_HAPPEN` or
    `CANNOT_TELL`.
    """
    options = {
        "name": name, "description": description, "read_only": read_only, "idempotent": idempotent, "confirm": confirm,
        "deadline": deadline, "wait": wait, "schema": schema, "reconcile": reconcile,
    }  # fmt: skip
    if function is not None:
        return Tool(function, options)
    return lambda function: Tool(function, options)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter. The name `""` stands for `**arguments`."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{function.__name__}: the type {error.name} is not known at module level") from error
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found[""] = Any
        else:
            found[name] = hints.get(name, Any)
    return found


def _reason(error: Exception) -> str:
    """What is wrong with a value, in one line. The value itself came from the model."""
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic lists every place
        places = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in errors()[:20]]
        return "; ".join(places)
    return str(error) or type(error).__name__
