"""`walrus cluster recover-topics` and `recover-metadata`: what is left after more was lost than a cluster survives."""

from typing import Annotated

import typer

from walrus_client.admin import LostTopic, LostTopics
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
from walrus_client.cli.target import AdminOption, admin_client, output_of


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
