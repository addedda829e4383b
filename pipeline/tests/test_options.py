"""What users may write in `.option(...)`, and what they are told when it is wrong."""

import pytest
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.options import EARLIEST, LATEST, NAMES, Bound, SourceOptions

NEEDED = {"bootstrap.servers": "localhost:9090", "subscribe": "orders"}


def refused(**given: str) -> str:
    with pytest.raises(SourceError) as caught:
        SourceOptions.parse({**NEEDED, **given})
    assert caught.value.reason is Reason.OPTION_INVALID
    assert str(caught.value).startswith("[WALRUS_OPTION_INVALID] option ")
    return str(caught.value)


def test_everything_but_servers_and_topics_has_a_default():
    options = SourceOptions.parse(NEEDED)
    assert options == SourceOptions(("localhost:9090",), ("orders",))
    assert options.batch_range() == (Bound(EARLIEST), Bound(LATEST))
    assert options.stream_start() == Bound(LATEST)


def test_all_options_are_read_whatever_their_case():
    options = SourceOptions.parse(
        {
            "KAFKA.bootstrap.servers": "a:1, b:2",
            "SUBSCRIBE": "orders,bills,orders",
            "startingoffsets": "Earliest",
            "MAXOFFSETSPERTRIGGER": "10",
            "maxBytesPerTrigger": "2m",
            "minPartitions": "3",
            "maxBytesPerPartition": "512k",
            "includeHeaders": "True",
            "failOnDataLoss": "false",
        }
    )
    assert options == SourceOptions(
        bootstrap_servers=("a:1", "b:2"),
        topics=("bills", "orders"),
        starting=Bound(EARLIEST),
        offsets_per_trigger_max=10,
        bytes_per_trigger_max=2 << 20,
        partitions_min=3,
        bytes_per_partition_max=512 << 10,
        include_headers=True,
        fail_on_data_loss=False,
    )


def test_explicit_offsets_have_the_shape_that_kafka_users_know():
    options = SourceOptions.parse({**NEEDED, "startingOffsets": '{"orders": {"1": -2, "0": 23}}'})
    assert options.starting == Bound(None, ((("orders", 0), 23), (("orders", 1), -2)))


@pytest.mark.parametrize("missing", NEEDED)
def test_a_missing_option_is_named(missing):
    given = {name: value for name, value in NEEDED.items() if name != missing}
    with pytest.raises(SourceError, match=f"option {missing}: it is required"):
        SourceOptions.parse(given)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribed", "subscribe"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.server", "bootstrap.servers"),
    ],
)
def test_an_unknown_option_names_the_nearest(written, meant):
    assert f"did you mean {meant}?" in refused(**{written: "x"})


def test_an_option_that_is_near_to_none_is_not_taken_for_another():
    assert "did you mean" not in refused(color="x")
    assert "there are bootstrap.servers, " in refused(color="x")


@pytest.mark.parametrize(
    "name",
    ["subscribePattern", "assign", "startingTimestamp", "kafka.group.id", "fetchOffset.numRetries"],
)
def test_an_option_of_the_kafka_source_that_is_not_there_is_no_misspelling(name):
    for spelled in (name, name.lower()):
        said = refused(**{spelled: "x"})
        assert f"option {name}: Spark's Kafka source has it, this one does not yet; " in said
        assert "did you mean" not in said


def test_a_setting_of_a_kafka_client_is_refused_for_what_it_is():
    assert "have no meaning here" in refused(**{"kafka.fetch.min.bytes": "1"})


@pytest.mark.parametrize("name", NAMES)
def test_no_option_takes_nonsense(name):
    assert f"option {name}: " in refused(**{name: "{\x00"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", "a b"),
        ("subscribe", ".."),
        ("subscribe", " , "),
        ("bootstrap.servers", "localhost"),
        ("bootstrap.servers", "localhost:70000"),
        ("bootstrap.servers", ","),
        ("kafka.bootstrap.servers", "elsewhere:1"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxBytesPerTrigger", "1.5m"),
        ("includeHeaders", "yes"),
        ("startingOffsets", "42"),
        ("startingOffsets", '{"orders": 3}'),
        ("startingOffsets", '{"orders": {"0": -3}}'),
        ("startingOffsets", '{"orders": {"0": "1"}}'),
        ("startingOffsets", '{"orders": {"x": 1}}'),
        ("endingOffsets", '{"orders": {"0": true}}'),
    ],
)
def test_a_malformed_value_is_refused(name, value):
    refused(**{name: value})


def test_a_batch_cannot_begin_at_the_end_nor_end_at_the_beginning():
    for name, value in [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders": {"0": -1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders": {"0": -2}}'),
    ]:
        options = SourceOptions.parse({**NEEDED, name: value})
        with pytest.raises(SourceError, match=name):
            options.batch_range()


def test_a_stream_has_no_end():
    options = SourceOptions.parse({**NEEDED, "endingOffsets": "latest"})
    with pytest.raises(SourceError, match="endingOffsets"):
        options.stream_start()
