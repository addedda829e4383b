"""`walrus dev`: a local cluster of real node processes."""

import signal
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from walrus_client import dev, errors
from walrus_client.admin import AdminClient
from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import (
    Output,
    OutputOption,
    print_json,
    print_line,
    print_note,
    print_table,
    size_text,
)
from walrus_client.cli.target import output_of
from walrus_client.dev.ports import LOOPBACK

app = typer.Typer(
    help="Run a local cluster of real node processes: data, logs and ports in one folder.", no_args_is_help=True
)

DirOption = Annotated[
    Path, typer.Option("--dir", envvar="WALRUS_DEV_DIR", help="Folder of the cluster.", file_okay=False)
]
Node = Annotated[str, typer.Argument(help="Name or id of a node: node-1, or 1.", show_default=False)]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for a node to be ready.")]
_PASSED_ON = "Passed on to the nodes"
_Listeners = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[,org=ORG][,admin=off]",
        help="A further listener of each node, of that organisation; admin=off: no topics are changed. Repeat it.",
        rich_help_panel=_PASSED_ON,
        show_default=False,
    ),
]


@app.command()
def up(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(min=1, max=99, help="Number of nodes.")] = 3,
    directory: DirOption = dev.DEFAULT_DIRECTORY,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="First port; a node takes ten. [default: free ones, of WALRUS_DEV_PORTS (FIRST-LAST) if that is set]",
            show_default=False,
        ),
    ] = None,
    timeout: TimeoutOption = dev.READY_TIMEOUT_S,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, max=7, help="Replicas of each segment. [default: 3, or 1 below three nodes]", show_default=False
        ),
    ] = None,
    write_quorum: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=7,
            help="Replicas that have a record before it is acknowledged. [default: the majority]",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="Storage backend: auto, mmap, direct or io_uring.", rich_help_panel=_PASSED_ON)
    ] = None,
    fsync: Annotated[
        str | None, typer.Option(help="When to sync: each, never or a time as 200ms.", rich_help_panel=_PASSED_ON)
    ] = None,
    segment_entries_max: Annotated[
        int | None, typer.Option(min=1, help="Roll over after so many entries.", rich_help_panel=_PASSED_ON)
    ] = None,
    segment_bytes_max: Annotated[
        str | None, typer.Option(help="Roll over after so many bytes, as 512MiB.", rich_help_panel=_PASSED_ON)
    ] = None,
    segment_age_max: Annotated[
        str | None, typer.Option(help="Roll over at this age, as 12h.", rich_help_panel=_PASSED_ON)
    ] = None,
    segment_age_min: Annotated[
        str | None, typer.Option(help="Roll nothing younger for its size or age.", rich_help_panel=_PASSED_ON)
    ] = None,
    monitor_check_ms: Annotated[
        int | None, typer.Option(min=10, help="Time between two looks at the segments.", rich_help_panel=_PASSED_ON)
    ] = None,
    frame_bytes_max: Annotated[
        int | None, typer.Option(min=1, help="Longest text request.", rich_help_panel=_PASSED_ON)
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="Log level.", rich_help_panel=_PASSED_ON)] = None,
    no_auto_create_topics: Annotated[
        bool, typer.Option("--no-auto-create-topics", help="PUT needs REGISTER.", rich_help_panel=_PASSED_ON)
    ] = False,
    text_listener: _Listeners = None,
    grpc_listener: _Listeners = None,
    kafka_listener: _Listeners = None,
    test_controls: Annotated[bool, typer.Option("--test-controls", hidden=True)] = False,
    output: OutputOption = None,
) -> None:
    """Start a cluster, or what does not run of it, and wait until it serves.

    Ports are chosen free at the first start, and kept. In the same folder all other `walrus` commands find it.

    Examples:
        walrus dev up

        walrus dev up --nodes 1 --segment-entries-max 1000 --dir /tmp/one

        walrus dev up --nodes 5 --replication-factor 5 --write-quorum 3

        walrus dev up --kafka-listener acme,org=acme --kafka-listener guests,admin=off
    """
    options = dev.NodeOptions(
        backend=backend,
        fsync=fsync,
        replication_factor=replication_factor,
        write_quorum=write_quorum,
        segment_entries_max=segment_entries_max,
        segment_bytes_max=segment_bytes_max,
        segment_age_max=segment_age_max,
        segment_age_min=segment_age_min,
        monitor_check_ms=monitor_check_ms,
        frame_bytes_max=frame_bytes_max,
        log_level=log_level,
        no_auto_create_topics=no_auto_create_topics or None,
        test_controls=test_controls or None,
        text_listener=text_listener or None,
        grpc_listener=grpc_listener or None,
        kafka_listener=kafka_listener or None,
    )
    cluster = dev.start_cluster(
        directory,
        nodes=nodes,
        base_port=base_port,
        options=options,
        ready_timeout_s=timeout,
        progress=print_note,
    )
    _print_status(cluster, output_of(context, output))


@app.command()
def down(
    directory: DirOption = dev.DEFAULT_DIRECTORY,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove data, logs and the cluster itself.")] = False,
) -> None:
    """Stop all nodes. Their data and ports are kept for the next `up`.

    Example: walrus dev down --purge
    """
    try:
        cluster = dev.open_cluster(directory)
    except dev.NoCluster as nothing:
        print_note(str(nothing))  # what was asked for is so already
        return
    running = [node.name for node in cluster.nodes if node.is_running()]
    killed = cluster.stop()
    for name in killed:
        print_note(f"{name} did not end by itself and was killed")
    if purge:
        cluster.purge()
    print_line(f"{len(running)} node{'s' if len(running) != 1 else ''} stopped" + (", data removed" if purge else ""))


@app.command()
def status(context: typer.Context, directory: DirOption = dev.DEFAULT_DIRECTORY, output: OutputOption = None) -> None:
    """Show every node: process, ports, readiness, who leads the metadata, how many segments it leads, its memory.

    Example: walrus dev status --output json
    """
    _print_status(dev.open_cluster(directory), output_of(context, output))


@app.command()
def kill(
    node: Node,
    directory: DirOption = dev.DEFAULT_DIRECTORY,
    signal_name: Annotated[str, typer.Option("--signal", help="Name or number of the signal.")] = "KILL",
) -> None:
    """Send a signal to one node: SIGKILL, as a crash, or another.

    Examples:
        walrus dev kill node-2

        walrus dev kill 2 --signal STOP
    """
    number = _signal(signal_name)
    if not dev.open_cluster(directory).kill(node, number=number):
        raise Failed(f"{node} does not run")
    print_line(f"{number.name} sent to {node}")


@app.command()
def restart(
    node: Node, directory: DirOption = dev.DEFAULT_DIRECTORY, timeout: TimeoutOption = dev.READY_TIMEOUT_S
) -> None:
    """Stop one node, if it runs, start it again on its data and ports, and wait until it serves.

    Example: walrus dev restart node-2
    """
    dev.open_cluster(directory).restart(node, ready_timeout_s=timeout)
    print_line(f"{node} is ready")


@app.command()
def logs(
    node: Annotated[
        str | None, typer.Argument(help="Name or id of one node. [default: all]", show_default=False)
    ] = None,
    directory: DirOption = dev.DEFAULT_DIRECTORY,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines of each.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Print the ends of the nodes' logs.

    Example: walrus dev logs -f node-1
    """
    cluster = dev.open_cluster(directory)
    chosen = [known for known in cluster.nodes if node is None or node in (known.name, str(known.node_id))]
    if not chosen:
        raise Failed(f"there is no node {node!r}; the nodes are {', '.join(n.name for n in cluster.nodes)}")
    tails = [_Tail(known.name if node is None else "", known.log_file) for known in chosen]
    for tail in tails:
        tail.print_last(lines)
    try:
        while follow:
            if sum(tail.print_new() for tail in tails) == 0:  # no short cut: all of them print
                time.sleep(0.2)  # files cannot be waited for portably
    except KeyboardInterrupt:
        return


class _Tail:
    """The end of one log file, and what is appended to it."""

    def __init__(self, label: str, path: Path) -> None:
        self._prefix = f"{label}: " if label else ""
        self._path = path
        self._position = 0
        self._partial = b""

    def print_last(self, count: int) -> None:
        lines = self._new_lines()
        for line in lines[len(lines) - min(count, len(lines)) :]:
            print_line(self._prefix + line)

    def print_new(self) -> bool:
        lines = self._new_lines()
        for line in lines:
            print_line(self._prefix + line)
        return bool(lines)

    def _new_lines(self) -> list[str]:
        try:
            with self._path.open("rb") as log:
                log.seek(self._position)
                content = log.read()
        except FileNotFoundError:
            return []
        self._position += len(content)
        *lines, self._partial = (self._partial + content).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _print_status(cluster: dev.DevCluster, output: Output) -> None:
    statuses = cluster.status()
    led = _segments_led(cluster)
    rows = [_status_row(seen, led, cluster.listeners(seen.node.name)) for seen in statuses]
    if output is Output.JSON:
        print_json({"directory": str(cluster.directory), "bootstrap": cluster.bootstrap, "nodes": rows})
        return
    print_table(
        ("node", "state", "pid", "kafka", "text", "grpc", "http", "raft", "peer", "metadata", "segments led", "memory"),
        (
            (
                row["name"],
                row["state"] + (f": lacks {', '.join(row['missing'])}" if row["missing"] else ""),
                row["pid"],
                *(row["ports"][port] for port in ("kafka", "text", "grpc", "http", "raft", "peer")),
                row["metadata_role"],
                row["segments_led"],
                size_text(row["memory_bytes"]),
            )
            for row in rows
        ),
    )
    for row in rows:
        for name, address in row["listeners"].items():
            print_line(f"{row['name']} listens for {name} at {address}")


def _status_row(seen: dev.NodeStatus, led: Counter[int] | None, further: dict[str, str]) -> dict[str, Any]:
    node = seen.node
    state = "ready" if seen.readiness.ready else "running" if seen.running else "stopped"
    return {
        "name": node.name,
        "node_id": node.node_id,
        "state": state,
        "missing": list(seen.readiness.missing),
        "pid": node.process.pid if node.process and seen.running else None,
        "ports": {port: getattr(node.ports, port) for port in ("text", "grpc", "peer", "raft", "http", "kafka")},
        "listeners": further,
        "metadata_role": seen.metadata_role(),
        "segments_led": led[node.node_id] if led is not None else None,
        "memory_bytes": seen.memory_bytes,
        "data_dir": str(node.data_dir),
        "log_file": str(node.log_file),
    }


def _segments_led(cluster: dev.DevCluster) -> Counter[int] | None:
    """Ask each node how many open segments it leads; None if nobody can tell."""
    led: Counter[int] | None = None
    for node in cluster.nodes:
        try:
            with AdminClient(f"{LOOPBACK}:{node.ports.admin}", timeout=2.0) as admin:
                told = admin.status()
        except errors.WalrusError:
            continue  # it does not run, or does not answer
        led = Counter() if led is None else led
        if told.identity.node_id is not None:
            led[told.identity.node_id] = told.segments_led
    return led


def _signal(name: str) -> signal.Signals:
    try:
        return (
            signal.Signals(int(name)) if name.isdecimal() else signal.Signals["SIG" + name.upper().removeprefix("SIG")]
        )
    except (KeyError, ValueError):
        raise typer.BadParameter(f"{name!r} is no signal", param_hint="--signal") from None
