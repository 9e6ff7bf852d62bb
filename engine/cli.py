"""`motet engine`: one replica, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Serve one replica: one base model in memory, many adapters, one batch.")


@app.callback(invoke_without_command=True)
def engine(  # noqa: PLR0913, PLR0917  (a command's options are its arguments)
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder of the base model.")] = None,
    name: Annotated[str | None, typer.Option(help="Public id of the base model.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bfloat16 or float32.")] = None,
    quantization: Annotated[
        str | None, typer.Option(help="fp8 quantizes weights at load; none leaves a checkpoint as it is.")
    ] = None,
    kv_cache_dtype: Annotated[
        str | None, typer.Option(help="auto (as --dtype) or fp8_e4m3: half the memory of a token.")
    ] = None,
    kv_scales: Annotated[
        Path | None, typer.Option(help="Scales of an FP8 KV cache, as `motet engine calibrate` writes them.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Adapters in the batch's memory at a time.")] = None,
    num_blocks: Annotated[int | None, typer.Option(help="KV blocks; overrides --kv-bytes.")] = None,
    kv_bytes: Annotated[int | None, typer.Option(help="Memory of the KV cache, in bytes.")] = None,
    max_running: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Tokens computed in one step.")] = None,
    max_adapters_per_step: Annotated[int | None, typer.Option(help="Adapters in one step.")] = None,
    itl_stretch: Annotated[
        float | None, typer.Option(help="How far prompts may stretch the steps of others; 0 is any.")
    ] = None,
    target_itl_ms: Annotated[
        float | None, typer.Option(help="Fewer sequences run where steps take longer; 0 is no target.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads; 0 is one a core.")] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option(help="Processes that compute the model together.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Object store of adapters: a folder or s3://…")] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Adapters on the local disk.")] = None,
    journal_dir: Annotated[Path | None, typer.Option(help="The usage journal.")] = None,
    trace_plans: Annotated[
        Path | None, typer.Option(help="Write a trace of the core's step plans to this file.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of prompt and answer together.")] = None,
) -> None:
    """Options override MOTET_ENGINE_* variables. The bearer token comes from MOTET_ENGINE_TOKEN only."""
    options = {key: value for key, value in locals().items() if value is not None and key != "context"}
    if context.invoked_subcommand is not None:
        return
    from engine.server.main import run  # noqa: PLC0415  (keeps `motet --help` quick)

    raise typer.Exit(run(options))


@app.command()
def calibrate(
    model: Annotated[Path, typer.Option(help="Hugging Face folder of the base model.")],
    out: Annotated[Path, typer.Option(help="The file to write, for --kv-scales.")],
    text: Annotated[
        Path | None, typer.Option(help="A text like those to be served; else a built-in one.")
    ] = None,
    quantization: Annotated[str, typer.Option(help="As it will be served: none or fp8.")] = "none",
    threads: Annotated[int, typer.Option(help="Compute threads; 0 is one a core.")] = 0,
) -> None:
    """Run a text through the base and write down the scales of an FP8 KV cache, one for the keys and one for
    the values of each layer."""
    from engine.calibrate import run  # noqa: PLC0415  (keeps `motet --help` quick)

    raise typer.Exit(run(model, out, text, quantization=quantization, threads=threads))
