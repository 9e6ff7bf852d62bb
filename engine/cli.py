"""`motet engine`: one replica, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Serve one replica: one base model in memory, many adapters, one batch.")


@app.callback(invoke_without_command=True)
def engine(  # noqa: PLR0913, PLR0917  (a command's options are its arguments)
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder of the base model.")] = None,
    name: Annotated[str | None, typer.Option(help="Public id of the base model.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bfloat16 or float32.")] = None,
    slots: Annotated[int | None, typer.Option(help="Adapters in the batch's memory at a time.")] = None,
    num_blocks: Annotated[int | None, typer.Option(help="KV blocks; overrides --kv-bytes.")] = None,
    kv_bytes: Annotated[int | None, typer.Option(help="Memory of the KV cache, in bytes.")] = None,
    max_running: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Tokens computed in one step.")] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads; 0 is one a core.")] = None,
    store: Annotated[str | None, typer.Option(help="Object store of adapters: a folder or s3://…")] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Adapters on the local disk.")] = None,
    journal_dir: Annotated[Path | None, typer.Option(help="The usage journal.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of prompt and answer together.")] = None,
) -> None:
    """Options override MOTET_ENGINE_* variables. The bearer token comes from MOTET_ENGINE_TOKEN only."""
    options = {key: value for key, value in locals().items() if value is not None}
    from engine.server.main import run  # noqa: PLC0415  (keeps `motet --help` quick)

    raise typer.Exit(run(options))
