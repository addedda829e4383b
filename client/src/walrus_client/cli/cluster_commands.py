"""`walrus cluster`: how a cluster is, and who is in it, by the admin service of any node."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from walrus_client.admin import (
    AdminClient,
    CopyView,
    MetadataStatus,
    NodeView,
    Replication,
    SegmentView,
    Status,
    Storage,
)
from walrus_client.cli import config_commands, organisation_commands, recovery_commands
from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    print_json,
    print_line,
    print_table,
    size_text,
)
from walrus_client.cli.target import AdminOption, SecretFileOption, admin_client, output_of, use_secret
from walrus_client.errors import WalrusError

app = typer.Typer(help="See how a cluster is, and change its settings.", no_args_is_help=True)
app.add_typer(config_commands.app, name="config")
app.add_typer(organisation_commands.app, name="orgs")


@app.callback()
def cluster(context: typer.Context, secret_file: SecretFileOption = None) -> None:
    """See how a cluster is, and change its settings."""
    use_secret(context, secret_file)


_NODE_TIMEOUT_S = 2.0  # for one of many nodes, of which some may be out of reach from here

NodeArgument = Annotated[str, typer.Argument(help="Id, name or disk of a node.", show_default=False)]


@app.command()
def status(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """Show one node and how it sees the cluster: readiness, metadata, storage, segments.

    Example: walrus cluster status --output json
    """
    with admin_client(context, admin) as client:
        seen = client.status()
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(seen))
    else:
        print_table(("what", "is"), _status_rows(seen))


@app.command()
def nodes(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """List the nodes of the cluster: where they are, whether they are alive, who votes on the metadata, how they write.

    Storage is the backend in use, and how what is synced is written; each node is asked for it at its admin address.

    Example: walrus cluster nodes
    """
    with admin_client(context, admin) as client:
        seen = client.status()
    storages = _storages(context, seen.nodes)
    if output_of(context, output) is Output.JSON:
        print_json(
            [
                as_dict(node) | {"storage": None if storage is None else as_dict(storage)}
                for node, storage in zip(seen.nodes, storages, strict=True)
            ]
        )
        return
    leader = seen.metadata.leader if seen.metadata else None
    print_table(
        ("id", "name", "state", "metadata", "storage", "zone", "grpc", "text", "admin", "disk"),
        [
            (
                node.node_id,
                node.name or None,
                node.state if node.alive else "down",
                _metadata_role(node, leader),
                storage and ", ".join(filter(None, (storage.backend_in_use, storage.synced_writes))),
                node.zone or None,
                node.grpc_address,
                node.text_address,
                node.admin_address or None,
                node.disk,
            )
            for node, storage in zip(seen.nodes, storages, strict=True)
        ],
    )


def _storages(context: typer.Context, nodes: Sequence[NodeView]) -> list[Storage | None]:
    """Ask each node for its store, all at the same time; None where it is not open, or the node does not answer."""

    def storage(node: NodeView) -> Storage | None:
        if not (node.alive and node.admin_address):
            return None
        try:
            with admin_client(context, node.admin_address, timeout_s=_NODE_TIMEOUT_S) as client:
                told = client.status().storage
        except WalrusError:
            return None
        return told if told.backend_in_use else None

    with ThreadPoolExecutor(max_workers=max(len(nodes), 1)) as pool:
        return list(pool.map(storage, nodes))


@app.command()
def segments(
    context: typer.Context,
    topic: Annotated[
        str, typer.Option("--topic", help="Only of this topic: NAME or ORGANISATION/NAME.", show_default=False)
    ] = "",
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only those with fewer copies than there should be.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 1_000,
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """List segments: who leads and stores them, where they begin and end.

    A copy is shown as its node and its state: `2 verified`; `!` where that node is down.

    Examples:
        walrus cluster segments --topic orders

        walrus cluster segments --under-replicated --output json
    """
    wanted = topic if not topic or "/" in topic else f"default/{topic}"
    with admin_client(context, admin) as client:
        found = client.segments(wanted, under_replicated=under_replicated, limit=limit)
    if output_of(context, output) is Output.JSON:
        print_json([as_dict(segment) for segment in found])
        return
    print_table(
        ("topic", "partition", "number", "state", "leader", "epoch", "base", "end", "copies", "lacks copies"),
        [_segment_row(segment) for segment in found],
    )


@app.command("can-stop")
def can_stop(
    context: typer.Context, node: NodeArgument, admin: AdminOption = None, output: OutputOption = None
) -> None:
    """Tell what the cluster would lack if a node stopped; exit code 1 if anything.

    Example: walrus cluster can-stop orders-2
    """
    with admin_client(context, admin) as client:
        found = client.can_stop(_disk(client, node))
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(found))
    else:
        print_line("it can stop" if found.can_stop else "\n".join(found.reasons))
    if not found.can_stop:
        raise Failed(f"{node} should not stop now")


@app.command()
def drain(
    context: typer.Context,
    node: NodeArgument,
    cancel: Annotated[bool, typer.Option("--cancel", help="Let it take segments again.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show how far it is.")] = False,
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Give a node no new segments and move those that it leads or stores. Asking again shows how far it is.

    Example: walrus cluster drain orders-2
    """
    with admin_client(context, admin) as client:
        disk = _disk(client, node)
        ask = client.drain if status else client.cancel_drain if cancel else client.start_drain
        found = ask(disk)
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(found))
    else:
        state = "drained" if found.done else "draining" if found.draining else "not draining"
        print_line(
            f"node {found.node_id} is {state}: leads {found.segments_led}, stores {found.segments_held} segments"
        )


@app.command()
def transfer(
    context: typer.Context,
    to: Annotated[
        str, typer.Option("--to", help="Id, name or disk of a voter. [default: any]", show_default=False)
    ] = "",
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Let another voter lead the metadata.

    Example: walrus cluster transfer --to orders-1
    """
    with admin_client(context, admin) as client:
        leader = client.transfer_leadership(_disk(client, to) if to else "")
    if output_of(context, output) is Output.JSON:
        print_json({"leader": leader})
    else:
        print_line(f"node {leader} leads the metadata")


@app.command()
def finalize(
    context: typer.Context,
    level: Annotated[
        int, typer.Option("--level", min=0, help="Up to this level. [default: what all nodes know]", show_default=False)
    ] = 0,
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Let the cluster use what its release brought to the metadata. No node goes back to the release before then.

    Nodes with `--finalize auto`, which is the default, do it by themselves once all of them know it.

    Example: walrus cluster finalize
    """
    with admin_client(context, admin) as client:
        before = client.status().metadata
        found = client.finalize_level(level)
    if output_of(context, output) is Output.JSON:
        print_json({"level": found})
    elif before is not None and before.level == found:
        print_line(f"level {found} of commands is in use already")
    else:
        print_line(f"commands up to level {found} are used from now on: a node that knows less does not start any more")


@app.command()
def remove(
    context: typer.Context,
    node: NodeArgument,
    lost: Annotated[bool, typer.Option("--lost", help="Its disk is lost, with what it stored.")] = False,
    replaced_by: Annotated[
        str, typer.Option("--replaced-by", help="The node that came in its place.", show_default=False)
    ] = "",
    admin: AdminOption = None,
) -> None:
    """Take a node's disk out of the cluster for good.

    Example: walrus cluster remove orders-2 --lost --replaced-by 4
    """
    with admin_client(context, admin) as client:
        successor = _disk(client, replaced_by) if replaced_by else ""
        client.remove_member(_disk(client, node), lost=lost, replaced_by=successor)
    print_line(f"{node} is no member any more")


@app.command()
def replace(
    context: typer.Context,
    node: NodeArgument,
    by: Annotated[str, typer.Option("--by", help="The node that came in its place.", show_default=False)],
    admin: AdminOption = None,
) -> None:
    """Replace a node whose disk is lost: its disk is out for good, its copies are made on others.

    The same as `walrus cluster remove NODE --lost --replaced-by OTHER`.

    Example: walrus cluster replace orders-2 --by 4
    """
    with admin_client(context, admin) as client:
        client.remove_member(_disk(client, node), lost=True, replaced_by=_disk(client, by))
        copies = client.status().copies
    print_line(f"{node} is replaced by {by}")
    if copies is not None and copies.under_replicated:
        print_line(f"{copies.under_replicated} segments get new copies: see `walrus cluster status`")


@app.command()
def replication(
    context: typer.Context,
    factor: Annotated[int, typer.Option(min=1, max=9, help="Copies of each segment.")],
    write_quorum: Annotated[int, typer.Option(min=1, max=9, help="Disks that an acknowledged record is on.")],
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Change how segments are replicated: new ones at once, open ones when they roll, sealed ones get or lose copies.

    Example: walrus cluster replication --factor 3 --write-quorum 2
    """
    with admin_client(context, admin) as client:
        client.set_replication(Replication(factor, write_quorum))
    if output_of(context, output) is Output.JSON:
        print_json({"factor": factor, "write_quorum": write_quorum})
    else:
        print_line(f"segments that are opened from now on get {factor} copies, of which {write_quorum} acknowledge")


# The help lists commands as they come here: what is needed least stands last.
app.command("recover-topics")(recovery_commands.recover_topics)
app.command("recover-metadata")(recovery_commands.recover_metadata)


def _disk(client: AdminClient, node: str) -> str:
    """Return the disk of a node that is named by its id, its name or its disk; an unknown one is taken for a disk."""
    found = [known.disk for known in client.members() if node in (str(known.node_id), known.name, known.disk)]
    if len(found) > 1:
        raise Failed(f"{len(found)} nodes are called {node!r}: name the id or the disk, see `walrus cluster nodes`")
    return found[0] if found else node


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
            ("level of commands", _level(metadata)),
            ("segments led, held here", f"{seen.segments_led}, {seen.segments_held}"),
            ("under-replicated", seen.under_replicated),
            ("nodes to spare", seen.spare_nodes),
            ("settings version", seen.config_version),
        ]
    if (replication := seen.replication) is not None:
        rows.append(("replicas, acknowledged by", f"{replication.factor}, {replication.write_quorum}"))
    if (copies := seen.copies) is not None:
        rows.append(("copies moving, damaged", f"{copies.moving}, {copies.damaged}"))
        if copies.without_copy:
            rows.append(("sealed segments without a copy", copies.without_copy))
        if copies.in_one_zone:
            rows.append(("segments that need one zone", copies.in_one_zone))
        if copies.lost:
            rows.append(("segments lost on all disks", copies.lost))
    if storage.copies_not_whole:
        rows.append(("copies here not whole for long", storage.copies_not_whole))
    backend = storage.backend_in_use or "not open yet"
    rows += [
        ("storage backend", f"{backend} (asked: {storage.backend_asked})"),
        ("reason", storage.reason),
        ("synced writes", storage.synced_writes),
        ("why cached", storage.cached_reason),
        ("data directory", storage.data_dir),
        ("disk free", f"{size_text(storage.bytes_free)} of {size_text(storage.bytes_total)}"),
    ]
    return rows


def _level(metadata: MetadataStatus) -> str | None:
    """The level in use, and what could be; None where the node does not tell."""
    if not metadata.level:
        return None
    if metadata.level_reachable <= metadata.level:
        return str(metadata.level)
    return f"{metadata.level}; all nodes know {metadata.level_reachable}: `walrus cluster finalize` has it used"


def _segment_row(segment: SegmentView) -> tuple[object, ...]:
    return (
        segment.topic,
        segment.partition,
        segment.number,
        segment.state,
        segment.leader,
        segment.epoch,
        segment.base_offset,
        segment.end_offset,
        ", ".join(map(_copy_text, segment.copies)),
        "yes" if segment.under_replicated else None,
    )


def _copy_text(copy: CopyView) -> str:
    return f"{copy.node_id} {copy.state}{'' if copy.alive else '!'}"


def _metadata_role(node: NodeView, leader: int | None) -> str:
    if node.node_id == leader:
        return "leader"
    return "voter" if node.voter else "observer"
