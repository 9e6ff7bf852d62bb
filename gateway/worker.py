"""One worker of the gateway: started by `gateway.serve`, which hands it the listening socket."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn

from gateway.app import create_app
from gateway.config import Settings
from gateway.draining import DrainingServer
from gateway.http_protocol import BoundedHttp, ConnectionLimits, connection_limit
from gateway.metric_values import keep_in_memory
from gateway.serve import LIFE_FD, LISTEN_FD, STARTUP_FAILED
from gateway.telemetry import METRICS_DIR, configure_logging

GC_OBJECTS = 20_000


def main() -> None:
    configure_logging()
    keep_in_memory()
    settings = Settings()
    BoundedHttp.limits = ConnectionLimits(
        connection_limit(settings.max_connections), settings.write_timeout_s
    )
    _remove_metrics_of_a_killed_parent(os.getppid())
    _follow_parent(int(os.environ[LIFE_FD]))
    server = _server(settings)
    _collect_rarely()
    server.run(sockets=[socket.socket(fileno=int(os.environ[LISTEN_FD]))])
    if not server.started:
        sys.exit(STARTUP_FAILED)


def _collect_rarely() -> None:
    """What was made at the start stays, and a request leaves next to no cycles: looking for them after each
    700 objects, as Python does, was a fifteenth of its cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 20)


def _server(settings: Settings) -> uvicorn.Server:
    app = create_app(settings)
    return DrainingServer(
        uvicorn.Config(
            app,
            loop="uvloop",
            http=BoundedHttp,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=round(settings.idle_connection_s),
            timeout_graceful_shutdown=math.ceil(settings.drain_s),
        ),
        app.state.leaving,
        notice_s=settings.drain_notice_s,
    )


def _remove_metrics_of_a_killed_parent(parent: int) -> None:
    """At the end of this process, which is when uvicorn raises again the signal that told it to stop."""

    def leave(number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            shutil.rmtree(os.environ[METRICS_DIR], ignore_errors=True)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, leave)


def _follow_parent(life_fd: int) -> None:
    """Drain and leave when the parent is gone: it holds the only write end of this pipe."""

    def wait() -> None:
        os.read(life_fd, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="follow-parent", daemon=True).start()


if __name__ == "__main__":
    main()
