"""Streams of changes: who may hold one open, and for how long."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from litestar.types import Receive, Send

from gateway.changes.feed import Feed
from gateway.changes.follower import Audience, Follower
from gateway.changes.metrics import ENDED
from gateway.changes.open_streams import OpenStreams
from gateway.changes.schemas import end_frame
from gateway.draining import Leaving
from gateway.envelope import stopping
from gateway.errors import ApiError, Unavailable
from gateway.inference.client import Client, ClientGone, ClientPatience
from gateway.principal import Role

RIGHTS_S: Final = 30.0
"""Between two looks at an account's rights, when nothing says that they changed."""
LIFE_S: Final = 3600.0
"""Then it is opened anew, by whichever worker."""
UNREAD_S: Final = 15.0
"""What is sent to one client may lie unread so long, all its pauses together."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a stream, as the door let it in. `still`: as what it would let it in now; raises when it
    would no more."""

    account: UUID
    audience: Audience
    after: str | None
    still: Callable[[], Awaitable[Role]]


class Changes:
    """One a worker."""

    def __init__(self, feed: Feed, streams: OpenStreams, keep_alive_s: float, leaving: Leaving) -> None:
        self._feed = feed
        self._open = streams
        self._patience = ClientPatience(UNREAD_S, keep_alive_s)
        self._leaving = leaving

    async def follow(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Until either side ends it. Raises `ApiError` for one that is not opened."""
        if self._leaving.begun:
            raise stopping()
        member_of = None if asked.audience.role is Role.OPERATOR else asked.audience.tenant
        with self._open.one_of(asked.account, member_of):
            client = Client(receive, send, self._patience)
            client.stream_headers = {"cache-control": "no-store"}
            follower = self._feed.join(asked.audience, asked.after)
            try:
                with client.watched():
                    await _send_all(client, follower, asked.still)
            except ClientGone:
                pass
            finally:
                self._feed.leave(follower)


async def _send_all(client: Client, follower: Follower, still: Callable[[], Awaitable[Role]]) -> None:
    began = looked = time.monotonic()
    news = True
    while True:
        now = time.monotonic()
        if follower.doubted or now - looked > RIGHTS_S:
            follower.doubted, looked = False, now
            await _look_again(follower, still)
        if now - began > LIFE_S:
            follower.end("renew")
        if follower.ended is not None:
            break
        if frames := follower.take():
            await client.write(frames)
        elif not news:
            await client.keep_alive()
        news = await follower.wait(client.keep_alive_s)
    ENDED.labels(follower.ended).inc()
    await client.write(end_frame(follower.ended), more=False)


async def _look_again(follower: Follower, still: Callable[[], Awaitable[Role]]) -> None:
    """Who has another role now begins anew, and hears of what that one reads."""
    try:
        role = await still()
    except Unavailable:
        follower.end("renew")
    except ApiError:
        follower.end("session_ended")
    else:
        if role is not follower.audience.role:
            follower.end("renew")
