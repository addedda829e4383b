"""`walrus cluster`: how a cluster is, who is in it, and its settings, by the admin service of any node."""

from typing import Annotated

import typer

from walrus_client.admin import AdminClient, Config, NodeView, Status
from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    print_json,
    print_line,
    print_table,
    size_text,
)
from walrus_client.cli.target import AdminOption, admin_addresses, output_of

app = typer.Typer(help="See how a cluster is, and change its settings.", no_args_is_help=True)
config_app = typer.Typer(help="See and change settings that all nodes follow.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@app.command()
def status(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """Show one node and how it sees the cluster: readiness, metadata, storage, segments.

    Example: walrus cluster status --output json
    """
    with AdminClient(admin_addresses(admin)) as client:
        seen = client.status()
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(seen))
    else:
        print_table(("what", "is"), _status_rows(seen))


@app.command()
def nodes(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """List the nodes of the cluster: where they are, whether they are alive, who votes on the metadata.

    Example: walrus cluster nodes
    """
    with AdminClient(admin_addresses(admin)) as client:
        seen = client.status()
    if output_of(context, output) is Output.JSON:
        print_json([as_dict(node) for node in seen.nodes])
        return
    leader = seen.metadata.leader if seen.metadata else None
    print_table(
        ("id", "name", "state", "metadata", "grpc", "text", "admin", "disk"),
        [
            (
                node.node_id,
                node.name or None,
                node.state if node.alive else "down",
                _metadata_role(node, leader),
                node.grpc_address,
                node.text_address,
                node.admin_address or None,
                node.disk,
            )
            for node in seen.nodes
        ],
    )


@config_app.command("get")
def get_config(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """Show the settings; what is not among them is each node's own option.

    Example: walrus cluster config get
    """
    with AdminClient(admin_addresses(admin)) as client:
        _print_config(client.config(), output_of(context, output))


@config_app.command("set")
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
    entries, unset = _parse_settings(settings)
    with AdminClient(admin_addresses(admin)) as client:
        version = client.set_config(entries, unset=unset, expect_version=expect_version)
    if output_of(context, output) is Output.JSON:
        print_json({"version": version})
    else:
        print_line(f"settings have version {version}")


def _parse_settings(settings: list[str]) -> tuple[dict[str, int], list[str]]:
    """Return what to set, and what to take back."""
    entries: dict[str, int] = {}
    unset = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key or (value and not value.isdecimal()):
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE with a whole number", param_hint="KEY=VALUE")
        if value:
            entries[key] = int(value)
        else:
            unset.append(key)
    return entries, unset


def _print_config(config: Config, output: Output) -> None:
    if output is Output.JSON:
        print_json(as_dict(config))
    else:
        print_table(("key", f"value (version {config.version})"), config.entries.items())


def _status_rows(seen: Status) -> list[tuple[str, object]]:
    identity, metadata, storage = seen.identity, seen.metadata, seen.storage
    rows: list[tuple[str, object]] = [
        ("node", f"{identity.node_id or '-'} ({identity.node_name})"),
        ("ready", "yes" if seen.ready else "no: " + "; ".join(seen.missing)),
        ("version", identity.version),
        ("cluster", identity.cluster_id),
        ("disk", identity.disk),
    ]
    if metadata is not None:
        alive = sum(node.alive for node in seen.nodes)
        rows += [
            ("nodes", f"{alive} of {len(seen.nodes)} alive"),
            ("metadata leader", metadata.leader),
            ("metadata role here", metadata.role.value),
            ("metadata voters", ", ".join(map(str, metadata.voters))),
            ("metadata term, version", f"{metadata.term}, {metadata.version}"),
            ("segments led, held here", f"{seen.segments_led}, {seen.segments_held}"),
            ("under-replicated", seen.under_replicated),
            ("settings version", seen.config_version),
        ]
    backend = storage.backend_in_use or "not open yet"
    rows += [
        ("storage backend", f"{backend} (asked: {storage.backend_asked})"),
        ("reason", storage.reason),
        ("data directory", storage.data_dir),
        ("disk free", f"{size_text(storage.bytes_free)} of {size_text(storage.bytes_total)}"),
    ]
    return rows


def _metadata_role(node: NodeView, leader: int | None) -> str:
    if node.node_id == leader:
        return "leader"
    return "voter" if node.voter else "observer"
