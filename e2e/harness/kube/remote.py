"""Runs inside a pod: `produce` appends proven records until its input ends, `check` reads them and compares.

python3 -m harness.kube.remote produce BOOTSTRAP TOPIC PARTITIONS PRODUCERS
    prints {"acked": N} as it goes, then {"done": {...}, "pauses_s": [...]}
python3 -m harness.kube.remote fill BOOTSTRAP TOPIC PARTITIONS MEBIBYTES
    appends so much, spread over the partitions
python3 -m harness.kube.remote check BOOTSTRAP TOPIC PARTITIONS ACKED
    prints what is wrong, and how many records there are
"""

import json
import sys
import threading
from contextlib import suppress
from dataclasses import asdict

from walrus_client import Client
from walrus_client.errors import TopicExists

from harness.load import producing
from harness.records import check_partition


def main() -> None:
    """Does what the arguments say."""
    command, bootstrap, topic, partitions, argument = sys.argv[1:]
    if command == "produce":
        produce(bootstrap, topic, partitions=int(partitions), producers=int(argument))
    elif command == "fill":
        fill(bootstrap, topic, partitions=int(partitions), mebibytes=int(argument))
    else:
        acked = {int(producer): count for producer, count in json.loads(argument).items()}
        check(bootstrap, topic, acked, partitions=int(partitions))


def produce(bootstrap: str, topic: str, *, partitions: int, producers: int) -> None:
    """Appends to *topic*, which is made if it is not there, until the input ends."""
    ended = threading.Event()
    threading.Thread(target=_await_end_of_input, args=(ended,), daemon=True).start()
    with Client(bootstrap) as client, suppress(TopicExists):  # with other partitions than one
        client.create_topic(topic, partitions=partitions)
    with producing(bootstrap, topic, producers=producers, partitions=partitions) as load:
        while not ended.wait(0.1) and not load.failures:
            _say(acked=load.total())
    _say(done=load.acked, pauses_s=load.pauses_s)


def fill(bootstrap: str, topic: str, *, partitions: int, mebibytes: int) -> None:
    """Appends records of 64 KiB to *topic*, which is made if it is not there."""
    records = [bytes(64 << 10)] * 16
    with Client(bootstrap) as client:
        client.create_topic(topic, partitions=partitions)
        for number in range(mebibytes):
            client.append(topic, records, partition=number % partitions)


def check(bootstrap: str, topic: str, acked: dict[int, int], *, partitions: int) -> None:
    """Reads all of *topic* and says what is wrong with each partition."""
    number, findings = 0, dict[str, object]()
    with Client(bootstrap) as client:
        for partition in range(partitions):
            records = [(record.offset, record.value) for record in client.read(topic, partition)]
            number += len(records)
            mine = {producer: count for producer, count in acked.items() if producer % partitions == partition}
            found = asdict(check_partition(records, acked=mine))
            findings |= {f"partition {partition}, {kind}": _told(what) for kind, what in found.items() if what}
    _say(records=number, findings=findings)


def _told(what: list[object]) -> str:
    """How many they are, and the first and the last: all of a topic that is written twice are megabytes."""
    return f"{len(what)}, from {what[0]} to {what[-1]}"


def _await_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
