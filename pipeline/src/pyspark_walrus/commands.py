"""`walrus archive`: the archive of a topic from the command line.

Loaded with every `walrus` command, so Spark is imported only when an archive is made.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from walrus_client import Client
from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import Output, OutputOption, as_dict, print_json, print_line, print_note
from walrus_client.cli.target import BootstrapOption, grpc_addresses, output_of

from pyspark_walrus.errors import SourceError, message_within
from pyspark_walrus.folder import local_path

LOG_FILE = "_spark.log"  # readers of Parquet pass over names that begin with "_"


def archive_command(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)],
    to: Annotated[
        str,
        typer.Argument(
            help="Folder of the archive, or a URL that Spark can write to; made if it is not there.", show_default=False
        ),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Where the archive remembers how far it got: keep it as long. [default: in TO]", show_default=False
        ),
    ] = None,
    batch_bytes_max: Annotated[
        int, typer.Option(min=1, help="Bytes of one micro-batch, about: what a crash has to do again.")
    ] = 1 << 30,
    batch_records_max: Annotated[
        int | None, typer.Option(min=1, help="Records of one micro-batch. [default: any]", show_default=False)
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on without records that are gone; the log names them."),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Archive a topic with Spark to Parquet, under TO/month=YYYY-MM/.

    Run it again for what came since: it goes on where it stopped, also after a crash. Between runs every reader of
    Parquet finds each record exactly once; while one is at work, or until the next after one was killed, files may lie
    there that do not count, which read_archive of pyspark_walrus leaves out.

    A folder belongs to one topic. A run that would lose or double records is refused: another topic, one that was made
    again, a missing or foreign checkpoint or that of another copy, a second run at the same time.

    Example: walrus archive flights ./flights-archive
    """
    servers = grpc_addresses(context, bootstrap)
    with Client(servers) as client:
        client.segments(topic)  # what is wrong with the topic or the cluster is better said before Spark starts
    from pyspark.errors import PySparkException

    from pyspark_walrus.archive import archive, check
    from pyspark_walrus.binding import ArchiveRefusedError
    from pyspark_walrus.session import JavaMissingError, create_session

    local = local_path(to)
    log_file = local / LOG_FILE if local is not None else Path(tempfile.gettempdir()) / f"walrus-archive-{topic}.log"
    try:
        check(bootstrap_servers=servers, topic=topic, path=to, checkpoint=checkpoint)
        print_note("starting Spark ...")
        spark = create_session(f"walrus archive {topic}", log_file=log_file)
    except (ArchiveRefusedError, JavaMissingError, SourceError) as error:
        raise Failed(str(error)) from None
    columns = (TextColumn(f"archive {topic}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            done = archive(
                spark,
                bootstrap_servers=servers,
                topic=topic,
                path=to,
                checkpoint=checkpoint,
                records_per_batch_max=batch_records_max,
                bytes_per_batch_max=batch_bytes_max,
                accept_loss=accept_loss,
                on_progress=lambda records, total: bar.update(task, completed=records, total=total),
            )
    except (ArchiveRefusedError, SourceError) as error:
        raise Failed(str(error)) from None
    except PySparkException as error:
        reason = message_within(str(error)) or f"Spark failed: {str(error).splitlines()[0]}"
        raise Failed(f"{reason} (log: {log_file})") from None
    finally:
        spark.stop()
    if output_of(context, output) is Output.JSON:
        print_json({"topic": topic, "path": to, **as_dict(done)})
    else:
        print_line(f"{topic}: {done.records:,} records archived in {done.seconds:.1f} s, in {to}")
