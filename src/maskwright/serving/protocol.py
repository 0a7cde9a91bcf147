"""uvicorn's settings, and the limits of a connection that it has no settings for."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""Time for a client to send the headers of a request."""
UNREAD_SECONDS = 60.0
"""Time for a client to read the rest of a result that fills the socket's buffer."""
MAX_CONNECTIONS = 1000


def configure(app: Any, timeout: float) -> uvicorn.Config:
    """Return uvicorn's configuration of the server of an application that answers within `timeout` seconds."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_level="warning",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=round(timeout) + 5,
    )


class Protocol(H11Protocol):
    """uvicorn's HTTP protocol with time limits for headers and for results that the client does not read.

    uvicorn's own limits begin with the first response: without these, connections that send nothing stay open.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        request: Any = self.cycle
        if request is not None and not request.response_complete:
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def on_response_complete(self) -> None:
        if self.transport.get_write_buffer_size():
            self.loop.call_later(UNREAD_SECONDS, self._drop_unread)
        super().on_response_complete()

    def _drop_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
