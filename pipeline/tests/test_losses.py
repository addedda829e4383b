"""Which losses are told, where, and how often."""

import logging

import pytest
from pyspark_walrus.errors import SourceError
from pyspark_walrus.losses import Cause, Loss, Losses


def trimmed(start, end, partition=0):
    return Loss("orders", partition, start, end, Cause.TRIMMED)


CUT_OFF = Loss("orders", 0, 200, 300, Cause.CUT_OFF)


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.WARNING, "pyspark_walrus")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_loss_is_an_error_unless_the_query_accepts_it():
    with pytest.raises(SourceError, match=r"\[WALRUS_DATA_LOSS\] offsets 200 to 299 .* its newest records were lost"):
        Losses(fail=True).face([CUT_OFF])


def test_each_offset_is_told_once_with_its_cause(told):
    losses = Losses(fail=False)
    losses.face([trimmed(0, 30), CUT_OFF])
    losses.face([trimmed(0, 30), trimmed(10, 20), CUT_OFF])
    losses.face([trimmed(10, 50), trimmed(0, 30, partition=1)])
    skips = "[WALRUS_DATA_LOSS] skips offsets"
    lost = "the partition ends before them now: its newest records were lost"
    taken = "the partition begins behind them now: retention or a trim took them"
    assert told() == [
        f"{skips} 0 to 29 of partition 0 of topic orders: {taken}",
        f"{skips} 200 to 299 of partition 0 of topic orders: {lost}",
        f"{skips} 30 to 49 of partition 0 of topic orders: {taken}",
        f"{skips} 0 to 29 of partition 1 of topic orders: {taken}",
    ]


def test_a_loss_is_reported_until_a_micro_batch_follows_the_report():
    # Spark throws the report of a trigger away that makes no micro-batch.
    losses = Losses(fail=False)
    losses.face([trimmed(0, 30)])
    losses.batch_follows()  # the report of this one was made before
    assert losses.to_report() == losses.to_report() == [trimmed(0, 30)]
    losses.batch_follows()
    losses.face([CUT_OFF])
    losses.batch_follows()
    assert losses.to_report() == [CUT_OFF]
    losses.batch_follows()
    assert losses.to_report() == []
