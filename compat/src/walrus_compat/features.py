"""The features, the rows of the table, in the order in which they are tried."""

from collections.abc import Sequence

from walrus_compat import load, records
from walrus_compat.administration import admin, many_topics
from walrus_compat.feature import Each, Feature, Together
from walrus_compat.groups import cooperative, coordinator_killed, joining_and_leaving, static_members
from walrus_compat.kept import compaction, retention
from walrus_compat.stage import Config

EVERY_SECOND: Config = {"segment.ms": 1_000}
ROTATING: Config = {"walrus.leaders": "rotate"}

FEATURES: Sequence[Feature] = [
    Each("codecs", "every codec, keys, values and headers, there or not, times", records.codecs, is_quick=True),
    Each("sizes", "records up to the limit, and one beyond it", records.sizes),
    Each("acks", "`acks` 0, 1 and all", records.acks),
    Each("places", "reading from the first record, an offset, a time", records.places, is_quick=True),
    Each("latest", "reading from the end on, waiting for what comes", records.latest),
    Each("made again", "a topic deleted and made again under a producer and a reader", records.made_again),
    Each("groups", "one to eight members join, leave and are killed: all is delivered", joining_and_leaving),
    Each("static members", "one with a name is killed and comes again: nothing is shared anew", static_members),
    Each("cooperative", "members join while those that are there read on", cooperative),
    Each(
        "coordinator killed",
        "commits go on when the coordinator is killed, and none goes back",
        coordinator_killed,
        is_alone=True,
    ),
    Each("compaction", "readers of a compacted topic", compaction),
    Each("retention", "readers of a topic whose first records are deleted", retention),
    Each("admin", "topics, partitions, settings, records and groups, by the client's admin", admin, is_quick=True),
    Together("resets", "connections are reset again and again", load.resets, 1),
    Together("rolls, sticky", "segments end every second, their leaders stay", load.rolls, 1, EVERY_SECOND, True),
    Together(
        "rolls, rotating",
        "segments end every second, and another node leads each",
        load.rolls,
        8,
        {**EVERY_SECOND, **ROTATING},
        is_quick=True,
    ),
    Together(
        "rolling restart", "each node stops in turn, and is started again", load.rolling_restart, 2, is_quick=True
    ),
    Together("leaders killed", "each node is killed in turn, and is started again", load.kills, 2, is_quick=True),
    Each("10,000 topics", "all of 10,000 topics are listed, and one is written and read", many_topics),
]
