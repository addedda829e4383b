"""Runs inside a pod: `produce` appends proven records until its input ends, `check` reads them and compares.

python3 -m harness.kube.remote produce BOOTSTRAP TOPIC PRODUCERS    prints {"acked": N} as it goes, then {"done": {...}}
python3 -m harness.kube.remote check BOOTSTRAP TOPIC ACKED          prints what is wrong, and how many records there are
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
    command, bootstrap, topic, argument = sys.argv[1:]
    if command == "produce":
        produce(bootstrap, topic, producers=int(argument))
    else:
        check(bootstrap, topic, {int(producer): count for producer, count in json.loads(argument).items()})


def produce(bootstrap: str, topic: str, *, producers: int) -> None:
    """Appends to *topic*, which is made if it is not there, until the input ends."""
    ended = threading.Event()
    threading.Thread(target=_await_end_of_input, args=(ended,), daemon=True).start()
    with Client(bootstrap) as client, suppress(TopicExists):  # with other partitions than one
        client.create_topic(topic)
    with producing(bootstrap, topic, producers=producers) as load:
        while not ended.wait(0.1) and not load.failures:
            _say(acked=load.total())
    _say(done=load.acked)


def check(bootstrap: str, topic: str, acked: dict[int, int]) -> None:
    """Reads all of *topic* and says what is wrong with it."""
    with Client(bootstrap) as client:
        records = [(record.offset, record.value) for record in client.read(topic)]
    _say(records=len(records), findings={k: v for k, v in asdict(check_partition(records, acked=acked)).items() if v})


def _await_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
