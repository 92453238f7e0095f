"""Budao: AI agents that recover from failures, with tools that are functions of yours.

`Client` and `Session` talk to a server, `@tool` and `Worker` give its agents your functions, `serve` starts the bundled
server, and `budao.sync` has the same for programs without asyncio.
"""

from ._client import Client
from ._connection import Settings
from ._event import (
    ConnectionLoss,
    Cursor,
    Event,
    FaultReport,
    FinalAnswer,
    Interruption,
    Notice,
    PartialAnswer,
    Question,
    ToolCall,
    ToolOutput,
    ToolResult,
    TurnFailure,
)
from ._fault import Fault, Rejected, TurnCancelled, TurnFailed
from ._find import find_program
from ._server import Server, ServerFailed, serve
from ._session import Approve, Decision, Session
from ._tool import CANNOT_TELL, DID_NOT_HAPPEN, CallCancelled, Reconciliation, Tool, ToolContext, ToolError, happened, tool
from ._worker import Worker
from . import sync

__version__ = "0.1.0"

__all__ = [
    "CANNOT_TELL",
    "DID_NOT_HAPPEN",
    "Approve",
    "CallCancelled",
    "Client",
    "ConnectionLoss",
    "Cursor",
    "Decision",
    "Event",
    "Fault",
    "FaultReport",
    "FinalAnswer",
    "Interruption",
    "Notice",
    "PartialAnswer",
    "Question",
    "Reconciliation",
    "Rejected",
    "Server",
    "ServerFailed",
    "Session",
    "Settings",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "TurnCancelled",
    "TurnFailed",
    "TurnFailure",
    "Worker",
    "find_program",
    "happened",
    "serve",
    "sync",
    "tool",
]
