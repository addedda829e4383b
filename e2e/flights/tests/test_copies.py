"""The copies of real brokers, one of which was down."""

from flights.copies import own_copies
from flights.stream import TOPIC
from walrus_client import Client, SegmentState

SEGMENTS = 150


def test_a_broker_that_has_just_come_back_is_not_asked_before_it_has_caught_up(start):
    brokers = start(nodes=3, segment_entries_max=1)
    with Client(brokers.bootstrap) as client:
        client.create_topic(TOPIC)
        brokers.kill("node-3")
        for number in range(SEGMENTS + 1):
            client.append(TOPIC, [str(number).encode()])
        brokers.restart("node-3")
        sealed = [s for s in client.segments(TOPIC)[0].segments if s.state is SegmentState.SEALED]
    copies = own_copies(brokers, sealed)
    assert len(sealed) >= SEGMENTS
    assert copies["node-3"] == copies["node-1"] == copies["node-2"]
    assert copies["node-3"].keys() == {segment.uuid for segment in sealed}
