"""`walrus cluster`: how a cluster is, who is in it, and its settings, by the admin service of any node."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from walrus_client.admin import (
    AdminClient,
    Config,
    CopyView,
    LostTopic,
    LostTopics,
    MetadataStatus,
    NodeView,
    OrganisationLimits,
    Replication,
    SegmentView,
    Status,
    Storage,
)
from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    print_json,
    print_line,
    print_note,
    print_table,
    size_text,
)
from walrus_client.cli.settings import parse_settings
from walrus_client.cli.target import AdminOption, SecretFileOption, admin_client, output_of, use_secret
from walrus_client.errors import WalrusError

app = typer.Typer(help="See how a cluster is, and change its settings.", no_args_is_help=True)
config_app = typer.Typer(help="See and change settings that all nodes follow.", no_args_is_help=True)
app.add_typer(config_app, name="config")
orgs_app = typer.Typer(help="See and change organisations: namespaces of topics.", no_args_is_help=True)
app.add_typer(orgs_app, name="orgs")


@app.callback()
def cluster(context: typer.Context, secret_file: SecretFileOption = None) -> None:
    """See how a cluster is, and change its settings."""
    use_secret(context, secret_file)


@orgs_app.command("list")
def list_organisations(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """List the organisations with what they have and may have.

    Example: walrus cluster orgs list
    """
    with admin_client(context, admin) as client:
        found = client.organisations()
    if output_of(context, output) is Output.JSON:
        print_json([as_dict(organisation) for organisation in found])
        return
    print_table(
        ("organisation", "topics", "limit", "partitions", "limit", "creations per second"),
        [
            (
                organisation.name,
                organisation.topics,
                organisation.limits.topics_max,
                organisation.partitions,
                organisation.limits.partitions_max,
                organisation.limits.creations_per_second_max,
            )
            for organisation in found
        ],
    )


OrganisationArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)]


@orgs_app.command("set")
def set_organisation(
    context: typer.Context,
    name: OrganisationArgument,
    topics_max: Annotated[int | None, typer.Option(min=0, help="How many topics.", show_default=False)] = None,
    partitions_max: Annotated[
        int | None, typer.Option(min=0, help="How many partitions, of all its topics.", show_default=False)
    ] = None,
    creations_per_second_max: Annotated[
        int | None, typer.Option(min=0, help="How many topics may be created in a second.", show_default=False)
    ] = None,
    admin: AdminOption = None,
) -> None:
    """Make an organisation, or give one other limits; a limit that is not given is lifted.

    Its clients connect to listeners of its own: `walrus-node --grpc-listener NAME=0.0.0.0:9190,org=NAME`.

    Example: walrus cluster orgs set acme --topics-max 100
    """
    limits = OrganisationLimits(topics_max, partitions_max, creations_per_second_max)
    with admin_client(context, admin) as client:
        client.set_organisation(name, limits)
    print_line(f"organisation {name} is set")


@orgs_app.command("remove")
def remove_organisation(context: typer.Context, name: OrganisationArgument, admin: AdminOption = None) -> None:
    """Take an organisation out that has no topics.

    Example: walrus cluster orgs remove acme
    """
    with admin_client(context, admin) as client:
        client.remove_organisation(name)
    print_line(f"there is no organisation {name} any more")


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


@app.command("recover-topics")
def recover_topics(
    context: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(help="Name or uuid of a lost topic; without it they are listed.", show_default=False),
    ] = None,
    name: Annotated[
        str, typer.Option("--as", help="Its name from now on. [default: the one that it had]", show_default=False)
    ] = "",
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """List topics that the metadata have forgotten, or take one back with all that is left of its records.

    Metadata that were rolled back, or restored, behind a topic's creation do not name it; its records stay on the
    disks. All members must be up to take it back.

    Examples:
        walrus cluster recover-topics

        walrus cluster recover-topics orders --as orders-of-before
    """
    with admin_client(context, admin) as client:
        lost = client.lost_topics()
        if topic is not None:
            taken = client.recover_topic(_lost_topic(lost, topic).topic, name=name)
            if output_of(context, output) is Output.JSON:
                print_json({"recovered": taken})
            else:
                print_line(f"{taken} is back: `walrus read {taken}`")
            return
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(lost))
        return
    print_table(("topic", "uuid", "partition", "offsets", "size", "problem"), _lost_rows(lost))
    for silent in lost.silent:
        print_note(f"not looked at: {silent}")


@app.command("recover-metadata")
def recover_metadata(
    context: typer.Context,
    gone: Annotated[
        list[str] | None,
        typer.Option("--gone", metavar="DISK", help="A disk that will never come back; repeat it.", show_default=False),
    ] = None,
    follow: Annotated[
        str,
        typer.Option(metavar="CLUSTER", help="Enter the cluster that went on without this node.", show_default=False),
    ] = "",
    seed: Annotated[
        str, typer.Option(metavar="HOST:RAFT_PORT", help="Where that cluster is, with --follow.", show_default=False)
    ] = "",
    admin: AdminOption = None,
    output: OutputOption = None,
) -> None:
    """Go on without a majority of the metadata's voters, from what one node has: the last resort.

    What goes on is another cluster, with the topics and records of the nodes that are left. Destroy the disks that you
    name as gone, so that they cannot work together somewhere else. Give --admin: the node that is asked recovers.

    Examples:
        walrus cluster recover-metadata --admin 10.0.0.3:9091 --gone 6f1c... --gone 0b7e...

        walrus cluster recover-metadata --admin 10.0.0.4:9091 --follow 51d0... --seed 10.0.0.3:6000
    """
    if bool(gone) == bool(follow) or bool(follow) != bool(seed):
        raise Failed("give --gone for each disk that will never come back, or --follow and --seed")
    with admin_client(context, admin) as client:
        if follow:
            client.follow(follow, seed)
            cluster_id, left_behind = follow, list[str]()
        else:
            cluster_id, left_behind = client.recover_metadata(gone or [])
    if output_of(context, output) is Output.JSON:
        print_json({"cluster_id": cluster_id, "left_behind": left_behind})
        return
    print_line(f"the nodes start again as cluster {cluster_id}")
    for disk in left_behind:
        print_note(f"not reached: the node of disk {disk}; ask it with --follow {cluster_id}")


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


@config_app.command("get")
def get_config(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """Show the settings; what is not among them is each node's own option.

    Example: walrus cluster config get
    """
    with admin_client(context, admin) as client:
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
    texts, unset = parse_settings(settings)
    entries = {key: _whole_number(key, value) for key, value in texts.items()}
    with admin_client(context, admin) as client:
        version = client.set_config(entries, unset=unset, expect_version=expect_version)
    if output_of(context, output) is Output.JSON:
        print_json({"version": version})
    else:
        print_line(f"settings have version {version}")


def _lost_topic(lost: LostTopics, topic: str) -> LostTopic:
    named = [one for one in lost.topics if topic in (one.name, one.topic)]
    if not named:
        unseen = f"; not looked at: {'; '.join(lost.silent)}" if lost.silent else ""
        raise Failed(f"no lost topic is called {topic!r}: `walrus cluster recover-topics` lists them{unseen}")
    if len(named) > 1:
        raise Failed(f"several lost topics are called {topic!r}; give a uuid: {', '.join(one.topic for one in named)}")
    return named[0]


def _lost_rows(lost: LostTopics) -> list[tuple[object, ...]]:
    return [
        (
            topic.name or "(unknown)",
            topic.topic,
            partition.partition,
            f"[{partition.begins}, {partition.ends})",
            size_text(partition.bytes),
            partition.problem or "",
        )
        for topic in lost.topics
        for partition in topic.partitions
    ]


def _disk(client: AdminClient, node: str) -> str:
    """Return the disk of a node that is named by its id, its name or its disk; an unknown one is taken for a disk."""
    found = [known.disk for known in client.members() if node in (str(known.node_id), known.name, known.disk)]
    if len(found) > 1:
        raise Failed(f"{len(found)} nodes are called {node!r}: name the id or the disk, see `walrus cluster nodes`")
    return found[0] if found else node


def _whole_number(key: str, value: str) -> int:
    if not value.isdecimal():
        raise typer.BadParameter(f"{f'{key}={value}'!r} is not KEY=VALUE with a whole number", param_hint="KEY=VALUE")
    return int(value)


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
