"""How a node starts and ends, without a node: what is closed, who hears of the metadata, why it ends."""

import asyncio
import json
from uuid import uuid4

import pytest
import walrus_core
from walrus_node.closing import Closing
from walrus_node.commands import envelope
from walrus_node.config import parse_config
from walrus_node.data_plane import Feed, told_opening
from walrus_node.ending import DATA_REFUSED, Ending, StartError
from walrus_node.files import DataRefusedError
from walrus_node.metadata.machine import ClusterState, MetadataMachine
from walrus_node.publication import Publication


def test_what_was_opened_is_closed_newest_first() -> None:
    closed: list[str] = []

    async def close_server() -> None:
        closed.append("server")

    async def run() -> None:
        closing = Closing()
        closing.add(lambda: closed.append("directory"))
        closing.add(close_server)
        closing.add_blocking(closed.append, "store")
        await closing.close()

    asyncio.run(run())
    assert closed == ["store", "server", "directory"]


def test_who_follows_late_hears_of_the_newest_state_first() -> None:
    machine = MetadataMachine()
    first = machine.view()
    early: list[ClusterState] = []
    late: list[ClusterState] = []
    publication = Publication(first, early.append)
    second, third = machine.view(), machine.view()
    publication.publish(second)
    publication.add(late.append)
    publication.publish(third)
    assert early == [second, third]
    assert late == [second, third]


class RecordingDataPlane:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def configure(self, config_json: str) -> None:
        self.heard.append(json.loads(config_json)["segment_entries_max"])

    def publish(self, metadata: walrus_core.Metadata) -> None:
        self.heard.append(metadata.version)


def test_the_data_plane_hears_of_a_policy_before_the_state_that_brought_it_and_only_once() -> None:
    machine, data_plane = MetadataMachine(), RecordingDataPlane()
    config = parse_config(["--segment-entries-max", "9"], {})
    feed = Feed(data_plane, config)
    replication = {"factor": 1, "write_quorum": 1}
    machine.apply(envelope({"bootstrap": {"cluster_id": str(uuid4()), "replication": replication}}))
    feed.take(machine.view())
    machine.apply(envelope({"set_config": {"set": {"segments.max_entries": 5}, "unset": []}}))
    feed.take(machine.view())
    feed.take(machine.view())
    assert data_plane.heard == [1, 5, 2, 2]


def test_metadata_that_cannot_go_on_end_the_node_with_why() -> None:
    async def run() -> None:
        ending = Ending()

        async def start() -> None:
            ending.fail(DataRefusedError("the journal is damaged"))
            await asyncio.Event().wait()

        await ending.wait(start())

    with pytest.raises(StartError, match="the metadata cannot go on: the journal is damaged") as failed:
        asyncio.run(run())
    assert failed.value.exit_code == DATA_REFUSED


def test_an_open_is_told_in_steps_of_ten() -> None:
    """An operator writes what it is told down, and a hundred writes for one start are too many."""
    assert told_opening(None) == "data plane: opening the store"
    told = [told_opening(percent) for percent in range(101)]
    assert told[47] == "data plane: opening the store, 40 % of its logs and files are read"
    assert len(set(told)) == 11


def test_a_node_that_is_asked_to_end_once_more_leaves_its_last_thing_undone() -> None:
    def ended_by(*asked: str) -> list[str]:
        done: list[str] = []

        async def run() -> None:
            ending, began = Ending(), asyncio.Event()

            async def start() -> str:
                getattr(ending, asked[0])()
                return "started"

            async def last() -> None:
                began.set()
                for name in asked[1:]:
                    getattr(ending, name)()
                    await asyncio.Event().wait()
                done.append("last")

            assert await ending.wait(start()) == "started"
            await ending.unless_hurried(last())
            done.append("end")

        asyncio.run(run())
        return done

    assert ended_by("request") == ["last", "end"]
    assert ended_by("request", "request") == ["end"]
    assert ended_by("request", "hurry") == ["end"]
    assert ended_by("hurry") == ["end"]


def test_a_start_that_is_not_through_leaves_nothing_to_hand_over() -> None:
    async def run() -> None:
        ending = Ending()

        async def start() -> str:
            ending.request()
            await asyncio.Event().wait()
            return "never"

        assert await ending.wait(start()) is None

    asyncio.run(run())
