"""Wires the commands together, with those that other packages add."""

import importlib.metadata
from typing import Annotated

import typer

from walrus_client.cli import (
    cluster_commands,
    dev_commands,
    group_commands,
    log_commands,
    repl,
    stream_commands,
    text_commands,
)
from walrus_client.cli.exit_codes import HELP, Failed
from walrus_client.cli.output import OutputOption
from walrus_client.cli.target import AddrOption, BootstrapOption, Target, text_addresses

# An installed package adds commands with an entry point of this group: its name is the command's, its object is a
# function as typer takes them, or a typer.Typer with commands below it. The module is loaded at every start of
# `walrus`, so it imports what is slow only when its command runs.
ENTRY_POINTS = "walrus.commands"


def make_app() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        name="walrus",
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, epilog=HELP)(_root)
    app.command(rich_help_panel="Text protocol")(text_commands.register)
    app.command(rich_help_panel="Text protocol")(text_commands.put)
    app.command(rich_help_panel="Text protocol")(text_commands.get)
    app.command(rich_help_panel="Text protocol")(text_commands.state)
    app.command(rich_help_panel="Text protocol")(text_commands.metrics)
    app.add_typer(log_commands.topics_app, name="topics", rich_help_panel="Log service")
    app.command(rich_help_panel="Log service")(log_commands.segments)
    app.command(rich_help_panel="Log service")(log_commands.append)
    app.command(rich_help_panel="Log service")(log_commands.read)
    app.command(rich_help_panel="Log service")(stream_commands.produce)
    app.command(rich_help_panel="Log service")(stream_commands.consume)
    app.add_typer(group_commands.app, name="group", rich_help_panel="Log service")
    app.add_typer(cluster_commands.app, name="cluster", rich_help_panel="Cluster")
    app.add_typer(dev_commands.app, name="dev", rich_help_panel="Local cluster")
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        _add_extension(app, entry_point)
    return app


def _root(
    context: typer.Context,
    addr: AddrOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Talk to a Walrus cluster, or run one on this machine.

    Without a command: a prompt for the text protocol (help shows its commands).
    """
    context.obj = Target(addr=addr, bootstrap=bootstrap, output=output)
    if version:
        typer.echo(f"walrus {importlib.metadata.version('walrus-client')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        repl.run(text_addresses(context, addr))


def _add_extension(app: typer.Typer, entry_point: importlib.metadata.EntryPoint) -> None:
    panel = "Extensions"
    try:
        extension = entry_point.load()
    except Exception as failure:
        reason = f"{entry_point.value} cannot be loaded: {failure!r}"

        def unusable() -> None:
            raise Failed(reason)

        app.command(entry_point.name, help=f"Not usable: {reason}", rich_help_panel=panel)(unusable)
        return
    if isinstance(extension, typer.Typer):
        app.add_typer(extension, name=entry_point.name, rich_help_panel=panel)
    else:
        app.command(entry_point.name, rich_help_panel=panel)(extension)
