"""`motet up` and `motet models`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.local.models import ModelImportError, import_model

app = typer.Typer()
models = typer.Typer(no_args_is_help=True, help="Import base models.")
app.add_typer(models, name="models")


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Port of the gateway on 127.0.0.1.", min=1, max=65_535)] = 8080,
    home: Annotated[Path, typer.Option(help="State: database, adapters, logs.", envvar="MOTET_HOME")] = Path(
        "var"
    ),
    workers: Annotated[int, typer.Option(help="Gateway processes.", min=1, max=64)] = 2,
    replicas: Annotated[int, typer.Option(help="Engine replicas.", min=1, max=16)] = 1,
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32.")] = "bfloat16",
    slots: Annotated[int, typer.Option(help="Adapters that one batch may mix.", min=1, max=1024)] = 8,
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Demo tenants and adapters.")] = True,
) -> None:
    """Start the whole platform on this machine: services, model, replicas, gateway, demo tenants."""
    from deploy.local.up import UpOptions, run_up  # noqa: PLC0415 - `motet models` needs none of it

    if dtype not in ("bfloat16", "float32"):
        raise typer.BadParameter("--dtype is bfloat16 or float32")
    options = UpOptions(port, home, workers, replicas, dtype, slots, demo)
    raise typer.Exit(run_up(options))


@models.command("import")
def import_command(
    folder: Annotated[Path, typer.Argument(help="The model folder to make.")],
    source: Annotated[Path | None, typer.Option(help="A GGUF file; default: the demo model.")] = None,
) -> None:
    """Turn a GGUF file into a Hugging Face folder (bf16 safetensors, tokenizer, chat template)."""
    try:
        typer.echo(import_model(folder, source, typer.echo))
    except (ModelImportError, OSError) as error:
        typer.echo(f"motet: {error}", err=True)
        raise typer.Exit(1) from error
