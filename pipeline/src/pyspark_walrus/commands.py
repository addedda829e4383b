"""`walrus archive`: the archive of a topic from the command line.

Loaded with every `walrus` command, so Spark is imported only when an archive is made.
"""

from pathlib import Path
from typing import Annotated

import typer
from walrus_client import Client
from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import Output, OutputOption, as_dict, print_json, print_line, print_note
from walrus_client.cli.target import BootstrapOption, grpc_addresses, output_of

from pyspark_walrus.errors import message_within

LOG_FILE = "_spark.log"  # readers of Parquet pass over names that begin with "_"


def archive_command(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)],
    to: Annotated[Path, typer.Argument(help="Folder of the archive; made if it is not there.", show_default=False)],
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Where the archive remembers how far it got. [default: in TO]", show_default=False),
    ] = None,
    batch_records_max: Annotated[
        int | None, typer.Option(min=1, help="Records of one micro-batch. [default: all]", show_default=False)
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Archive a topic with Spark to Parquet, under TO/month=YYYY-MM/.

    Each record is there exactly once. Run it again for what came since: it goes on where it stopped, also after a
    crash.

    Example: walrus archive flights ./flights-archive
    """
    servers = grpc_addresses(context, bootstrap)
    with Client(servers) as client:
        client.segments(topic)  # what is wrong with the topic or the cluster is better said before Spark starts
    from pyspark.errors import PySparkException

    from pyspark_walrus.archive import archive
    from pyspark_walrus.session import JavaMissingError, create_session

    print_note("starting Spark ...")
    try:
        spark = create_session(f"walrus archive {topic}", log_file=to / LOG_FILE)
    except JavaMissingError as error:
        raise Failed(str(error)) from None
    try:
        done = archive(
            spark,
            bootstrap_servers=servers,
            topic=topic,
            path=to,
            checkpoint=checkpoint,
            records_per_batch_max=batch_records_max,
        )
    except PySparkException as error:
        reason = message_within(str(error)) or f"Spark failed: {str(error).splitlines()[0]}"
        raise Failed(f"{reason} (log: {to / LOG_FILE})") from None
    finally:
        spark.stop()
    if output_of(context, output) is Output.JSON:
        print_json({"topic": topic, "path": str(to), **as_dict(done)})
    else:
        print_line(f"{topic}: {done.records:,} records archived in {done.seconds:.1f} s, in {to}")
