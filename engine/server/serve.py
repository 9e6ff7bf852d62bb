"""The server process: builds every long-lived part, serves until told or the core is lost, closes them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn

from adapters.prompt import PromptEncoder
from engine.config import CoreSettings, EngineSettings
from engine.core.transport import ServerTransport
from engine.proofs.prover import Prover
from engine.server.app import Parts, create_app
from engine.server.chat import Intake
from engine.server.core_child import CoreChild
from engine.server.core_client import ClientLimits, CoreClient, CoreLost
from engine.server.http_protocol import BoundedHttp
from engine.server.metrics import Metrics
from engine.server.registration import keep_registered
from engine.server.token_text import TokenText

log = structlog.get_logger("engine.server")

LOST_GRACE_S = 1
"""Open requests get this long to read their error after the core was lost."""
END_GRACE_S = 2
"""After the drain, requests that are left are ended; their clients get this long to read it."""
CORE_GRACE_S = 5.0
LOOK_S = 1.0
"""Between two looks at whether the core still speaks."""


class StartFailed(Exception):
    """The engine can't start; one sentence says why."""


class ReplicaFailed(Exception):
    """The core is lost, and every open request has been told; one sentence says why."""


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, before anything slow is begun. Raises `StartFailed`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartFailed(f"can't listen on {host}:{port}: {error.strerror}") from None
    return listener


async def serve(settings: EngineSettings, listener: socket.socket) -> None:
    """Runs the replica until it has drained; raises `ReplicaFailed` once the core is lost."""
    encoder = await asyncio.to_thread(PromptEncoder, settings.model)
    table = await asyncio.to_thread(TokenText, settings.model)
    with runtime_dir(settings.runtime_dir) as folder:
        endpoint = f"ipc://{folder / 'core.sock'}"
        transport = ServerTransport(endpoint)
        try:
            child = await CoreChild.start(CoreSettings.of(settings, endpoint))
            intake = Intake(encoder, table, settings.inline_encode_bytes)
            await Replica(settings, transport, child, intake).run(listener)
        finally:
            transport.close()


class Replica:
    """The running whole: HTTP on one side, the core on the other."""

    def __init__(
        self, settings: EngineSettings, transport: ServerTransport, child: CoreChild, intake: Intake
    ) -> None:
        self._settings = settings
        self._child = child
        metrics = Metrics(settings.base_name)
        self._client = CoreClient(transport, metrics, _limits(settings))
        metrics.watch(self._client)
        self._prover = Prover(settings, self._client, intake.encoder)
        parts = Parts(settings, self._client, intake, metrics, self._prover)
        self._http = _Http(create_app(parts), settings)
        self._stopping = False

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop)
        tasks = [
            asyncio.create_task(self._converse()),
            asyncio.create_task(self._watch_child()),
            asyncio.create_task(self._watch_start()),
            asyncio.create_task(self._watch_silence()),
        ]
        if self._settings.register_url:
            tasks.append(asyncio.create_task(keep_registered(self._settings, self._client.ready)))
        log.info(
            "listening", host=self._settings.host, port=listener.getsockname()[1], core_pid=self._child.pid
        )
        try:
            await self._http.serve(sockets=[listener])
            await self._close()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._prover.close()
            await self._child.stop(0.0)

    async def _close(self) -> None:
        """HTTP has ended. A core that is still there is drained, so that its journal is complete."""
        if self._client.failure is not None:
            raise ReplicaFailed(self._client.failure)
        self._client.drain()
        await self._child.stop(CORE_GRACE_S)
        log.info("stopped")

    def _stop(self) -> None:
        """The first signal drains, the second cuts."""
        if self._stopping:
            self._http.force_exit = True
        self._stopping = self._http.should_exit = True
        self._client.stop_admitting()
        self._prover.stop()
        asyncio.get_running_loop().call_later(self._settings.drain_s, self._client.drain)
        log.info("draining", open_requests=self._client.num_open, drain_s=self._settings.drain_s)

    async def _converse(self) -> None:
        try:
            await self._client.run()
        except CoreLost:
            self._lost("")
        except Exception as error:  # a fault of this process: nothing more can be said to the core
            log.exception("conversation_failed")
            self._lost(f"The conversation with the core failed: {type(error).__name__}.")

    async def _watch_child(self) -> None:
        reason = await self._child.wait()
        await asyncio.sleep(0.1)  # its last frames may still be on the socket
        if not self._stopping or self._client.num_open:
            self._lost(reason)

    async def _watch_start(self) -> None:
        try:
            async with asyncio.timeout(self._settings.ready_timeout_s):
                await asyncio.shield(self._client.ready)
        except TimeoutError:
            self._lost(f"The core was not ready after {self._settings.ready_timeout_s:.0f} s.")

    async def _watch_silence(self) -> None:
        """A core that hangs is ended, so that whoever supervises this process starts a new one. Silence is
        counted in looks of our own: a machine that slept, or a stopped server, is no hang of the core."""
        await asyncio.shield(self._client.ready)
        num_messages, silent_s = 0, 0.0
        while silent_s < self._settings.stall_s:
            await asyncio.sleep(LOOK_S)
            silent_s = silent_s + LOOK_S if num_messages == self._client.num_messages else 0.0
            num_messages = self._client.num_messages
        log.error("core_stalled", silent_s=silent_s, open_requests=self._client.num_open)
        self._child.kill()

    def _lost(self, reason: str) -> None:
        self._client.fail(reason)
        self._prover.stop()  # also one that waits for nothing of the core just now
        self._http.config.timeout_graceful_shutdown = LOST_GRACE_S
        self._http.should_exit = True


class _Http(uvicorn.Server):
    """Uvicorn, with its signals left to `Replica`: a drained server exits 0, not by the signal."""

    def __init__(self, app: object, settings: EngineSettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]  # Litestar's and uvicorn's ASGI types differ by name only
                http=BoundedHttp,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=settings.keep_alive_s,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
                ssl_ca_certs=None if settings.tls_client_ca is None else str(settings.tls_client_ca),
                ssl_cert_reqs=ssl.CERT_NONE if settings.tls_client_ca is None else ssl.CERT_REQUIRED,
                timeout_graceful_shutdown=round(settings.drain_s) + END_GRACE_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _limits(settings: EngineSettings) -> ClientLimits:
    return ClientLimits(
        open_requests=settings.admission_limit,
        unread_tokens=settings.stream_buffer_tokens,
        recent=settings.recent_requests,
        watchers=settings.state_watchers,
        silence_s=settings.core_silence_s,
    )


@contextlib.contextmanager
def runtime_dir(chosen: Path | None) -> Iterator[Path]:
    """Where the local socket lies. A path of a Unix socket has at most ~100 bytes, hence a short one."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    folder = Path(tempfile.mkdtemp(prefix="motet-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
