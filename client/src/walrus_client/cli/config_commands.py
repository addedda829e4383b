"""`walrus cluster config`: the settings that all nodes follow."""

from typing import Annotated

import typer

from walrus_client.admin import Config
from walrus_client.cli.output import Output, OutputOption, as_dict, print_json, print_line, print_table
from walrus_client.cli.settings import parse_settings
from walrus_client.cli.target import AdminOption, admin_client, output_of

app = typer.Typer(help="See and change settings that all nodes follow.", no_args_is_help=True)


@app.command("get")
def get_config(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """Show the settings; what is not among them is each node's own option.

    Example: walrus cluster config get
    """
    with admin_client(context, admin) as client:
        _print_config(client.config(), output_of(context, output))


@app.command("set")
def set_config(
    context: typer.Context,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="KEY= goes back to each node's own option.", show_default=False),
    ],
    expect_version: Annotated[
        int | None,
        typer.Option("--expect-version", min=0, help="Only if the settings have this version.", show_default=False),
    ] = None,
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Change settings, all or none; every node follows them at once and after a restart.

    Examples:
        walrus cluster config set segments.max_entries=1000 segments.max_age_ms=3600000

        walrus cluster config set segments.max_entries=
    """
    texts, unset = parse_settings(settings)
    entries = {key: _whole_number(key, value) for key, value in texts.items()}
    with admin_client(context, admin) as client:
        version = client.set_config(entries, unset=unset, expect_version=expect_version)
    if output_of(context, output) is Output.JSON:
        print_json({"version": version})
    else:
        print_line(f"settings have version {version}")


def _whole_number(key: str, value: str) -> int:
    if not value.isdecimal():
        raise typer.BadParameter(f"{f'{key}={value}'!r} is not KEY=VALUE with a whole number", param_hint="KEY=VALUE")
    return int(value)


def _print_config(config: Config, output: Output) -> None:
    if output is Output.JSON:
        print_json(as_dict(config))
    else:
        print_table(("key", f"value (version {config.version})"), config.entries.items())
