"""What the kernel may hold of a connection: by itself it takes megabytes of a sender, read or not."""

from __future__ import annotations

import socket
from typing import Final

UNSENT_BYTES: Final = 128 * 1024
"""Of a client's connection, beyond what is on its way; speed over a long distance is not touched."""

UNREAD_BYTES: Final = 128 * 1024
"""Of a replica's connection, read ahead of a slow client; a replica is near."""


def bound_connections(listener: socket.socket, gone_s: float) -> None:
    """For the connections that it will take. `gone_s`: how long what was sent may stay without an answer of
    the other machine before the connection is over."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(gone_s * 1000))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def bound_reading(connection: socket.socket) -> None:
    """Before it is connected: what the other side may have sent is then told to it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
