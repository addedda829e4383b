"""The programs, in the order in which they are tried."""

from collections.abc import Sequence
from importlib.metadata import version

from walrus_compat import apache, connect, interfaces, spark, streams, tools
from walrus_compat.program import Program, classes

SPARK = f"{version('pyspark')}, its connector {spark.SET.rpartition('-')[2]}"


PROGRAMS: Sequence[Program] = [
    Program(
        "command-line tools",
        apache.VERSION,
        "`kafka-topics`, `kafka-configs`, `kafka-console-producer` and `-consumer`, `kafka-consumer-groups` (list,"
        " describe, reset, delete), `kafka-producer-perf-test` and `kafka-consumer-perf-test`",
        tools.command_line,
    ),
    Program(
        "user interfaces",
        apache.VERSION,
        "what Kafbat and AKHQ ask, replayed by the Java client's admin: an answer, or an error that they catch",
        interfaces.asked,
        needs=(classes() / "Interface.class",),
        is_quick=True,
    ),
    Program(
        "Kafka Streams",
        apache.VERSION,
        "words are counted at least once, though the application is killed and goes on in another folder",
        streams.words,
        needs=(classes() / "Words.class",),
    ),
    Program(
        "Kafka Connect",
        connect.VERSION,
        "a distributed worker with a file source and a file sink, killed and started again",
        connect.files,
        needs=(connect.jars(),),
    ),
    Program(
        "Spark",
        SPARK,
        "Spark's own source and sink of Kafka: batches, and a stream that goes on from its checkpoint",
        spark.source_and_sink,
        needs=(spark.jars(),),
    ),
]
