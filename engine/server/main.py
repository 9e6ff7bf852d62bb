"""Settings to a running replica, with one clear line for everything that can be wrong before it runs."""

from __future__ import annotations

import sys
from typing import Any

import uvloop
from pydantic import ValidationError

from adapters.base import BaseSpec, UnsupportedBase
from engine.config import EngineSettings
from engine.server.logs import set_up_logs
from engine.server.serve import ReplicaFailed, StartFailed, listen, serve
from engine.server.token_text import TokenizerUnsupported


def run(options: dict[str, Any]) -> int:
    """Serves until told to stop; the exit status. `options` override the environment, by field name."""
    try:
        settings = EngineSettings(**options)
        if not (settings.model / "config.json").is_file():
            return _fail(f"{settings.model} holds no model: there is no config.json in it")
        BaseSpec.from_dir(settings.model, settings.base_name)
        set_up_logs()
        with listen(settings.host, settings.port) as listener:
            uvloop.run(serve(settings, listener))
    except ValidationError as error:
        return _fail(_first_problem(error))
    except (StartFailed, ReplicaFailed, UnsupportedBase, TokenizerUnsupported) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    return 0


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    field = str(problem["loc"][0]) if problem["loc"] else "settings"
    name = {"motet_engine_base_model": "model"}.get(field, field)
    if problem["type"] == "missing":
        where = "MOTET_ENGINE_TOKEN" if name == "token" else f"--{name.replace('_', '-')}"
        return f"no {name}: set {where}"
    return f"{name.replace('_', '-')}: {problem['msg'].removeprefix('Value error, ')}"


def _fail(message: str) -> int:
    sys.stderr.write(f"motet engine: {message}\n")
    return 1
