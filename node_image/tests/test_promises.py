"""A disk that has forgotten what it promised does not vote again."""

from collections.abc import Callable

import walrus_core
from node_process import NodeProcess
from text_client import say


def test_a_store_whose_journal_lost_its_end_does_not_come_back_as_the_same_disk(
    node: Callable[..., NodeProcess],
) -> None:
    """The node started as if nothing had happened, and voted a second time about segments that it had voted for."""
    founder = node("--bootstrap").start()
    disk = founder.wait_ready()["disk"]
    assert say(founder, "REGISTER t") == "OK"
    assert say(founder, "PUT t x") == "OK"
    assert founder.stop() == 0
    store = founder.data / "log"
    (journal,) = store.glob("journal-*")
    with journal.open("r+b") as file:
        file.truncate(208)
    for _ in range(2):  # the first refusal has changed nothing
        assert founder.start().exit_code() == 3
        assert f"--join and --replaces {disk}" in founder.log.read_text()
        assert founder.log.read_text().count("Traceback") == 0
    walrus_core.repair_store(store)
    assert founder.start().exit_code() == 3, "a repair gives no promise back"
