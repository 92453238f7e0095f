"""A server's address and the settings of its connections."""

from __future__ import annotations

from typing import Any

from ._connection import Settings
from ._event import Cursor
from ._session import Approve, Session


class Client:
    """A server by its address: `ws://127.0.0.1:7333/ws`. Each session has a connection of its own."""

    def __init__(self, url: str, *, token: str | None = None, **options: Any) -> None:
        """`options` are the fields of `Settings`: `language`, `retry_base`, `tries`, `silence`, `reply` …"""
        self.settings = Settings(url, token, **options)

    async def create(self, *, approve: Approve | None = None, language: str | None = None, name: str | None = None, **config: Any) -> Session:
        """Opens a session, which is durable when this returns. `config` is that of `user.create_session`."""
        content: dict[str, Any] = {}
        if name is not None:
            content["session_name"] = name
        if language or self.settings.language:
            content["preferences"] = {"language": language or self.settings.language}
        if config:
            content["config"] = config
        session = Session(self.settings, None, Cursor(), approve)
        try:
            await session.ask("user.create_session", content)
        except BaseException:
            await session.close()
            raise
        return session

    async def attach(self, session_id: str, cursor: Cursor | None = None, *, approve: Approve | None = None) -> Session:
        """Continues a session behind `cursor`, or from its beginning."""
        session = Session(self.settings, session_id, cursor or Cursor(), approve)
        try:
            await session.wait_until_ready()
        except BaseException:
            await session.close()
            raise
        return session

    def __repr__(self) -> str:
        return f"Client({self.settings.url!r})"
