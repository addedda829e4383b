"""`walrus group`: consumer groups of Kafka's clients, and the shared cursors of topics, with how far they have read."""

from datetime import datetime
from typing import Annotated

import typer

from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    print_json,
    print_line,
    print_table,
)
from walrus_client.cli.points import parse_point
from walrus_client.cli.starts import offsets_of, starts_of
from walrus_client.cli.target import BootstrapOption, log_client, output_of
from walrus_client.model import GroupDescription, GroupKind, OffsetPlace

app = typer.Typer(help="See, move and forget who reads topics, and how far.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(help="Name of the group.", show_default=False)]


@app.command("list")
def list_groups(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the consumer groups of Kafka's clients, and the shared cursors of topics (GET).

    Example: walrus group list
    """
    with log_client(context, bootstrap) as client:
        groups = client.groups()
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(groups))
        return
    print_table(
        ("group", "kind", "state", "members", "protocol", "lag"),
        (
            (
                group.name,
                group.kind,
                group.state,
                group.members if group.state else None,
                group.protocol or None,
                group.lag,
            )
            for group in groups
        ),
    )


@app.command("describe")
def describe_group(
    context: typer.Context,
    name: GroupArgument,
    cursor: Annotated[bool, typer.Option("--cursor", help="The shared cursor of the topic NAME.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show how far a group has read each partition, how much is left, and who reads it.

    Examples:
        walrus group describe billing

        walrus group describe --cursor orders
    """
    with log_client(context, bootstrap) as client:
        described = client.describe_group(name, GroupKind.CURSOR if cursor else GroupKind.CONSUMER)
    if output_of(context, output) is Output.JSON:
        lags = [{**as_dict(position), "lag": position.lag} for position in described.positions]
        print_json({**as_dict(described), "positions": lags})
    else:
        _print_description(described)


@app.command("reset")
def reset_group(
    context: typer.Context,
    name: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets move.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="Where it goes on: earliest, latest, an offset (negative: back from the end), a time, or how long ago"
            " (2h).",
            show_default=False,
        ),
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; repeat it. [default: all]", show_default=False),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Move a consumer group that has no members to other offsets of a topic.

    Examples:
        walrus group reset billing --topic orders --to earliest

        walrus group reset billing --topic orders --to 2h
    """
    try:
        point = parse_point(to, datetime.now().astimezone())
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--to") from None
    with log_client(context, bootstrap) as client:
        wanted = sorted(set(partitions or range(client.describe_topic(topic).topic.partitions)))
        ends = offsets_of(client, topic, wanted, OffsetPlace.LATEST)
        offsets = starts_of(client, topic, wanted, point, ends)
        client.reset_group(name, topic, offsets)
    if output_of(context, output) is Output.JSON:
        print_json({"group": name, "topic": topic, "offsets": offsets})
    else:
        print_table(("partition", "next offset"), sorted(offsets.items()))


@app.command("delete")
def delete_group(
    context: typer.Context,
    name: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Forget a consumer group that has no members, with all that it has committed.

    Example: walrus group delete billing --yes
    """
    if not yes:
        typer.confirm(f"Forget group {name} and how far it has read?", abort=True, err=True)
    with log_client(context, bootstrap) as client:
        client.delete_group(name)
    if output_of(context, output) is Output.JSON:
        print_json({"deleted": name})
    else:
        print_line(f"group {name} is forgotten")


def _print_description(described: GroupDescription) -> None:
    group = described.group
    if group.state is not None:
        members = f"{group.members} member{'s' if group.members != 1 else ''}"
        print_line(f"group {group.name}: {group.state}, {members}{f', {group.protocol}' if group.protocol else ''}")
    else:
        print_line(f"shared cursor of topic {group.name}")
    clients = {member.id: f"{member.client_id} at {member.host.lstrip('/')}" for member in described.members}
    print_table(
        ("topic", "partition", "next offset", "end", "lag", "read by"),
        (
            (
                position.topic,
                position.partition,
                position.offset,
                position.end,
                position.lag,
                clients.get(position.member or ""),
            )
            for position in described.positions
        ),
    )
