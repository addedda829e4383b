"""`walrus log inspect|verify|repair`: what lies in a store on this machine's disk.

Loaded with every `walrus` command, which brings typer along.
"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import walrus_core

app = typer.Typer(help="Stores on this machine's disk, while nobody has them open.", no_args_is_help=True)


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The store's directory: where its MANIFEST is.", show_default=False)
]
OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="How results are printed. [default: table]", show_default=False),
]


@app.command()
def inspect(context: typer.Context, directory: Directory, output: OutputOption = None) -> None:
    """Show logs, offsets, blocks, damage. Changes nothing.

    Ends with 1 where something cannot be read.
    """
    _run("inspect_store", context, directory, output)


@app.command()
def verify(context: typer.Context, directory: Directory, output: OutputOption = None) -> None:
    """Read every stored batch and check it. Changes nothing.

    Ends with 1 where something cannot be read.
    """
    _run("verify_store", context, directory, output)


@app.command()
def repair(context: typer.Context, directory: Directory, output: OutputOption = None) -> None:
    """Make a store open again: move aside what cannot be read, make a lost or damaged journal again.

    Deletes nothing. Ends with 1 where something still cannot be read.
    """
    _run("repair_store", context, directory, output)


def _run(function: str, context: typer.Context, directory: Path, output: Output | None) -> None:
    try:
        seen: dict[str, Any] = getattr(walrus_core, function)(directory)
    except (walrus_core.WalrusError, OSError) as error:
        sys.stderr.write(f"walrus log: {error}\n")
        raise typer.Exit(1) from None
    # `walrus --output json` says it for all commands.
    wanted = output or getattr(context.obj, "output", None) or Output.TABLE
    table = seen.pop("table")
    sys.stdout.write(table if wanted == Output.TABLE else json.dumps(seen, indent=2, ensure_ascii=False) + "\n")
    if seen["damaged"]:
        raise typer.Exit(1)
