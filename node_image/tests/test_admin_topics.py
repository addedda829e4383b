"""Topics of any organisation by the admin service of real nodes: compared, made, changed, deleted."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from node_process import NodeProcess
from waiting import wait_until
from walrus_client import Client, errors
from walrus_client.admin import AdminClient, FoundTopic, SettingDifference, WantedTopic

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
PAGE = Path(__file__).parents[2] / "docs/reference/administration.md"
KEPT = {"retention.ms": "5000"}


@pytest.fixture
def address(node: Make) -> str:
    """The admin service of a cluster of one node."""
    first = node("--bootstrap", "--node-name", "orders-0").start()
    first.wait_ready()
    return f"127.0.0.1:{first.ports['admin']}"


@pytest.fixture
def admin(address: str) -> AdminClient:
    """A client of it, where there is an organisation beside the default one."""
    client = AdminClient(address, timeout=30.0)
    wait_until("organisations are known", lambda: client.organisations())
    client.set_organisation("acme")
    return client


def compared(admin: AdminClient, config: dict[str, str], *, org: str = "acme") -> FoundTopic | None:
    (topic,) = admin.compare_topics([WantedTopic(org, "orders", config)])
    assert topic.refused is None
    return topic.found


def test_a_topic_of_an_organisation_is_made_once_compared_changed_and_deleted(admin: AdminClient) -> None:
    assert compared(admin, KEPT) is None
    topic, is_new = admin.make_topic("acme", "orders", partitions=3, config=KEPT)
    assert is_new
    assert admin.make_topic("acme", "orders", partitions=9) == (topic, False), "it is left as it is"
    found = compared(admin, KEPT)
    assert found is not None
    assert (found.topic, found.partitions, found.differences) == (topic, 3, ())
    assert found.leaders == {"orders-0": 3}
    assert {one.name: (one.value, one.source) for one in found.settings}["retention.ms"] == ("5000", "topic")
    assert compared(admin, KEPT, org="default") is None

    wanted = {"segment.ms": "7"}
    found = compared(admin, wanted)
    assert found is not None
    assert found.differences == (
        SettingDifference("retention.ms", None, "5000"),
        SettingDifference("segment.ms", "7", None),
    )
    admin.set_topic_config(topic, wanted, unset=["retention.ms"], expect_version=found.version)
    admin.set_topic_partitions(topic, 5)
    admin.set_topic_partitions(topic, 5)
    changed = compared(admin, wanted)
    assert changed is not None
    assert (changed.differences, changed.partitions) == ((), 5)
    with pytest.raises(errors.VersionMismatch):
        admin.set_topic_config(topic, KEPT, expect_version=found.version)

    admin.remove_topic(topic)
    assert compared(admin, wanted) is None
    with pytest.raises(errors.UnknownTopic):
        admin.remove_topic(topic)


def test_what_cannot_be_is_refused_with_a_sentence(admin: AdminClient) -> None:
    (topic,) = admin.compare_topics([WantedTopic("acme", "orders", {"retention.mss": "1"})])
    assert topic.refused == "topic setting retention.mss: there is no such setting; the nearest name is retention.ms"
    with pytest.raises(errors.RejectedError, match=r"topic setting retention\.ms: it takes whole numbers"):
        admin.make_topic("acme", "orders", config={"retention.ms": "soon"})
    with pytest.raises(errors.RejectedError, match='there is no organisation "nobody"'):
        admin.make_topic("nobody", "orders")
    with pytest.raises(errors.RejectedError, match="is not a topic name"):
        admin.make_topic("acme", "no/name")
    with pytest.raises(errors.RejectedError, match="no organisation"):
        admin.make_topic("_walrus", "orders")
    made, _ = admin.make_topic("acme", "orders", partitions=3)
    with pytest.raises(errors.RejectedError, match="has 3 partitions and cannot have 2"):
        admin.set_topic_partitions(made, 2)
    for partitions in (0, 2**32 - 1):
        with pytest.raises(errors.RejectedError, match="partitions must be between"):
            admin.make_topic("acme", "many", partitions=partitions)
    with pytest.raises(errors.InvalidRequest):
        admin.remove_topic("not-a-uuid")
    with pytest.raises(errors.InvalidRequest, match="1000 at most"):
        admin.compare_topics([WantedTopic("acme", f"t{number}") for number in range(1001)])


def test_the_example_of_the_reference_works(
    admin: AdminClient, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = [one for one in examples if "make_topic" in one]
    exec(example.replace("127.0.0.1:9091", address), {})
    assert "SettingDifference(name='segment.ms', wanted='1000', found='600000')" in capsys.readouterr().out


def test_a_topic_that_was_made_is_there_for_clients_at_once(node: Make, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("long enough to be shared by nodes\n")
    secret.chmod(0o600)
    first = node("--bootstrap", "--secret-file", str(secret)).start()
    first.wait_ready()
    address = f"127.0.0.1:{first.ports['admin']}"
    with AdminClient(address) as stranger, pytest.raises(errors.Unauthenticated):
        stranger.make_topic("default", "orders")
    with AdminClient(address, secrets=secret.read_bytes()) as client:
        wait_until("organisations are known", lambda: client.organisations())
        client.make_topic("default", "orders", partitions=2)
    with AdminClient(address) as stranger, Client(f"127.0.0.1:{first.ports['grpc']}") as producer:
        assert [topic.partitions for topic in producer.topics()] == [2]
        (seen,) = stranger.compare_topics([WantedTopic("default", "orders")])
        assert seen.found is not None, "whoever only reads needs no secret"
