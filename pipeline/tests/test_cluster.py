"""What a task reads while the topic changes under it, and what it tells of the rest."""

from dataclasses import dataclass, field, replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_walrus.cluster import Cluster, of_this_worker
from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.losses import Losses
from pyspark_walrus.offsets import Offsets, latest
from pyspark_walrus.plan import plan_range
from walrus_client import errors
from walrus_client.model import BatchPage, Node, Partition, Segment, SegmentState, Topic, TopicSegments

NODE = Node(id=0, grpc_address="node:9090", alive=True)


@dataclass
class Changing:
    """A client of a cluster whose one partition changes between the pages that it gives: by `events`, one for each."""

    events: list
    page: int
    uuid: str = "u-1"
    log_start: int = 0
    segments: list = field(default_factory=lambda: [("s-0", 0, 100), ("s-1", 100, 200)])

    @property
    def end(self):
        return self.segments[-1][2]

    def prefer(self, address):
        assert address == NODE.grpc_address

    def close(self):
        pass

    def topic_segments(self, name):
        shown = [
            Segment(uuid, 0, 0, max(base, self.log_start), end, SegmentState.SEALED, NODE, (NODE,), 100 * (end - base))
            for uuid, base, end in self.segments
            if end > self.log_start
        ]
        partition = Partition(name, 0, self.log_start, self.end, tuple(shown))
        return TopicSegments(Topic(name, self.uuid, 1, internal=False), (partition,))

    def read_batches(self, _topic, _partition, offset, *, end_offset, segment="", **_):
        while True:
            self.change()
            if not self.log_start <= offset <= self.end:
                raise errors.OffsetOutOfRange("no", requested=offset, start=self.log_start, end=self.end)
            if offset == end_offset:
                return
            last = next((end for uuid, _, end in self.segments if uuid == segment), None)
            if last is None:
                raise errors.UnknownSegment("no")
            if offset >= last:
                return
            offset = min(offset + self.page, last)
            yield BatchPage(b"", offset, self.end, self.log_start)

    def change(self):
        kind, where = self.events.pop(0) if self.events else ("nothing", 0)
        if kind == "trim":
            self.log_start = min(max(self.log_start, where), self.end)
        elif kind == "cut":
            self.cut(max(where, self.log_start))
        elif kind == "overwrite" and self.log_start <= where < self.end:
            end = self.end
            self.cut(where)
            self.segments.append((f"s-{len(self.events)}-again", where, end))
        elif kind == "made again":
            self.uuid, self.segments = "u-2", [(f"{uuid}-2", base, end) for uuid, base, end in self.segments]

    def cut(self, end):
        kept = [(uuid, base, min(last, end)) for uuid, base, last in self.segments if base < end]
        self.segments = kept or [("s-empty", end, end)]


def connected(client):
    cluster = Cluster(["node:9090"])
    cluster.close()
    cluster._client = client
    return cluster


changes = st.tuples(st.sampled_from(["nothing", "nothing", "trim", "cut", "overwrite"]), st.integers(0, 200))


@given(st.lists(changes, max_size=12), st.integers(1, 120), st.integers(0, 199), st.booleans())
def test_whatever_changes_meanwhile_each_offset_is_read_or_lost_once(events, page, start, again):
    client = Changing([], page)
    cluster = connected(client)
    before = cluster.look(["orders"])
    begin = replace(latest(before), next={("orders", 0): start})
    plan = plan_range(begin, latest(before), before, bytes_per_split_max=64 << 20, splits_min=1)
    client.events = [*events, *[("made again", 0)] * again]
    losses, read = Losses(fail=False), []
    try:
        for split in plan.splits:
            for piece in split.pieces:
                for chunk in cluster.chunks(piece, losses):
                    read += range(chunk.start, chunk.end)
    except SourceError as error:
        # It was another topic then, or it changed again right after a new look: Spark tries the task anew.
        allowed = {Reason.TOPIC_RECREATED: client.uuid == "u-2", Reason.SEGMENT_UNAVAILABLE: len(events) + again > 1}
        if allowed[error.reason]:
            return
        raise
    lost = [offset for loss in losses.to_report() for offset in range(loss.start, loss.end)]
    assert sorted(read + lost) == list(range(start, 200))
    assert read == sorted(read)


@pytest.mark.parametrize("event", ["trim", "cut"])
def test_what_goes_meanwhile_ends_a_query_that_does_not_accept_losses(event):
    client = Changing([("nothing", 0), (event, 150)], page=50)
    cluster = connected(client)
    there = cluster.look(["orders"])
    start = Offsets({"orders": "u-1"}, {("orders", 0): 0})
    plan = plan_range(start, latest(there), there, bytes_per_split_max=64 << 20, splits_min=1)
    losses = Losses(fail=True)
    with pytest.raises(SourceError) as caught:
        list(chain.from_iterable(cluster.chunks(piece, losses) for piece in plan.splits[0].pieces))
    assert caught.value.reason is Reason.DATA_LOSS


def test_a_worker_keeps_the_connection_of_its_last_task_and_none_of_one_that_failed():
    with of_this_worker(["one:9090"]) as first:
        pass
    with of_this_worker(["one:9090"]) as again:
        assert again is first
        with of_this_worker(["one:9090"]) as beside:
            assert beside is not first, "two tasks at a time share nothing"
    with pytest.raises(errors.Closed):
        beside._client.cluster_id()
    with of_this_worker(["two:9090"]):
        pass
    with pytest.raises(errors.Closed):
        first._client.cluster_id()
    with pytest.raises(KeyboardInterrupt), of_this_worker(["two:9090"]) as failed:
        raise KeyboardInterrupt
    with pytest.raises(errors.Closed):
        failed._client.cluster_id()
    with of_this_worker(["two:9090"]) as anew:
        assert anew is not failed
