"""An idempotent sink of streams, and what it got."""

import threading
from collections import Counter


class Sink:
    """Keeps the offsets of each micro-batch; one that is done again replaces itself, as an idempotent sink does."""

    def __init__(self, fail_in=None):
        self.batches = {}
        self.fail_in = fail_in
        self.changed = threading.Condition()

    def __call__(self, rows, batch_id):
        found = rows.select("topic", "partition", "offset").collect()
        offsets = [(row.topic, row.partition, row.offset) for row in found]
        if batch_id == self.fail_in:
            raise RuntimeError("the sink fails on purpose")
        with self.changed:
            self.batches[batch_id] = offsets
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.offsets()) >= count, timeout=60)

    @property
    def rows(self):
        """(topic, partition, offset) of all that counts."""
        return [row for batch in self.batches.values() for row in batch]

    def offsets(self):
        """(partition, offset) of all that counts."""
        return [row[1:] for row in self.rows]

    def assert_once(self, *, end, partitions=1):
        expected = {(partition, offset): 1 for partition in range(partitions) for offset in range(end)}
        assert Counter(self.offsets()) == expected
