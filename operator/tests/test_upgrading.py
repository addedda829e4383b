"""A cluster becomes one of another release, and goes back until the level of its metadata is final.

The releases of these tests are four, of which one in the middle cannot be passed over: neighbours speak with each
other, the first and the third do not.
"""

import json

import pytest
from driving import KEY, Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from simapi import Crash
from simbrokers import SimRelease
from simkube import SimKube
from walrus_operator.api.releases import Release, Wire
from walrus_operator.objects import Ref

FINALIZE = "walrus.dev/finalize"
TABLE = (
    Release("1.0.0", Wire(1, 2), 7),
    Release("1.1.0", Wire(2, 3), 7),
    Release("1.2.0", Wire(3, 4), 8),
    Release("1.3.0", Wire(3, 4), 9),
)
UNKNOWN = "registry.example/walrus@sha256:" + "1" * 64
BY_HAND = {"finalize": "Manual"}


class Watched(SimKube):
    """The level rises only once all brokers run what the spec says; none is started that knows less."""

    def __init__(self):
        super().__init__()
        self.table = TABLE
        self.releases = {f"walrus/walrus-node:{one.version}": SimRelease(one.level, one.wire) for one in TABLE}
        finalize = self.brokers.finalize_level

        async def watched(host, level, secrets):
            wanted = self.objects[Ref("WalrusCluster", "shop", "orders")]["spec"]
            image = wanted.get("image") or f"walrus/walrus-node:{wanted['version']}"
            assert {pod["spec"]["containers"][0]["image"] for pod in self.pods().values()} == {image}
            await finalize(host, level, secrets)

        self.brokers.finalize_level = watched

    def step(self):
        moved = super().step()
        for ref in self.objects:
            assert ref.kind != "Pod" or not self._is_too_old(ref), f"{ref.name} is of a release that never starts"
        return moved


def started(version="1.0.0", kube=None, **fields):
    kube = kube or Watched()
    kube.put("orders", changed(SMALLEST, version=version, **fields))
    converge(kube)
    return kube


def wanting(kube, version, annotations=None, **fields):
    kube.put("orders", changed(SMALLEST, version=version, **fields), annotations=annotations or {})
    converge(kube)


def imaged(kube, image, **fields):
    spec = changed(SMALLEST, image=image, **fields)
    del spec["version"]
    kube.put("orders", spec)
    converge(kube)


def level(kube):
    return kube.used["cluster-1"]


def versions(kube):
    return {row["version"] for row in status(kube)["brokers"] if "version" in row}


def messages(kube):
    return [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]


def is_ready(kube):
    return condition(kube, "Ready")["status"] == "True"


def test_the_level_rises_once_the_last_broker_runs_the_release():
    kube = started("1.1.0")
    assert level(kube) == 7
    seen = []
    kube.put("orders", changed(SMALLEST, version="1.2.0"))
    converge(kube, KEY, lambda: seen.append((level(kube), len(versions(kube)))))
    assert level(kube) == 8
    assert (7, 2) in seen
    assert (8, 2) not in seen
    assert status(kube)["level"] == {"used": 8, "knownByAll": 8}
    assert {(row["levelKnown"], row["wireVersions"]) for row in status(kube)["brokers"]} == {(8, "3 to 4")}
    assert any(message.startswith("Use commands of level 8") for message in messages(kube))
    assert is_ready(kube)
    writes = kube.writes
    assert Operator(kube).once().plan.is_idle
    assert kube.writes == writes


def test_where_a_person_says_when_the_level_waits_and_nothing_is_held_up():
    kube = started("1.1.0", updatePolicy=BY_HAND)
    wanting(kube, "1.2.0", updatePolicy=BY_HAND)
    assert level(kube) == 7
    assert status(kube)["level"] == {"used": 7, "knownByAll": 8}
    assert is_ready(kube)
    assert Operator(kube).once().plan.is_idle
    wanting(kube, "1.2.0", {FINALIZE: "9"}, updatePolicy=BY_HAND)
    assert level(kube) == 7
    wanting(kube, "1.2.0", {FINALIZE: " 8 "}, updatePolicy=BY_HAND)
    assert level(kube) == 8


def test_an_order_that_stays_finalizes_no_later_release():
    kube = started("1.1.0", updatePolicy=BY_HAND)
    wanting(kube, "1.2.0", {FINALIZE: "8"}, updatePolicy=BY_HAND)
    wanting(kube, "1.3.0", {FINALIZE: "8"}, updatePolicy=BY_HAND)
    assert level(kube) == 8
    assert status(kube)["level"] == {"used": 8, "knownByAll": 9}


def test_there_is_a_way_back_until_the_level_is_final_and_none_afterwards():
    kube = started("1.1.0", updatePolicy=BY_HAND)
    for version in ("1.2.0", "1.1.0", "1.2.0"):
        wanting(kube, version, updatePolicy=BY_HAND)
        assert versions(kube) == {version}
        assert is_ready(kube)
    wanting(kube, "1.2.0")
    assert level(kube) == 8
    wanting(kube, "1.1.0")
    assert versions(kube) == {"1.2.0"}
    assert condition(kube, "SpecAccepted")["reason"] == "ReleaseRefused"
    assert "never goes back" in condition(kube, "SpecAccepted")["message"]
    assert condition(kube, "SpecAccepted")["message"].endswith("Set version to 1.2.0")


def test_whoever_goes_back_and_lets_the_operator_finalize_goes_back_first():
    """In one change of the spec: brokers that all know level 8 do not use it, as they are to be others."""
    kube = started("1.1.0", updatePolicy=BY_HAND)
    wanting(kube, "1.2.0", updatePolicy=BY_HAND)
    wanting(kube, "1.1.0")
    assert versions(kube) == {"1.1.0"}
    assert level(kube) == 7
    assert is_ready(kube)


def test_a_roll_that_is_half_done_goes_back():
    kube = started("1.1.0")
    kube.put("orders", changed(SMALLEST, version="1.2.0"))
    operator = Operator(kube)
    while "1.2.0" not in versions(kube):
        operator.once()
        kube.step()
    assert len(versions(kube)) == 2
    wanting(kube, "1.1.0")
    assert versions(kube) == {"1.1.0"}
    assert level(kube) == 7


def test_a_release_that_is_passed_over_is_refused_before_the_first_pod_with_the_one_to_take():
    kube = started("1.0.0")
    before = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    wanting(kube, "1.2.0")
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == before
    refused = condition(kube, "SpecAccepted")
    assert refused["reason"] == "ReleaseRefused"
    assert "wire versions 3 to 4, and orders-general-0 speaks 1 to 2" in refused["message"]
    assert refused["message"].endswith("Set version to 1.1.0 first")
    for version in ("1.1.0", "1.3.0"):
        wanting(kube, version)
        assert versions(kube) == {version}
    assert level(kube) == 9


def test_a_release_that_is_passed_over_on_the_way_back_is_refused_too():
    kube = started("1.1.0")
    wanting(kube, "1.0.0")
    assert versions(kube) == {"1.0.0"}
    wanting(kube, "1.3.0")
    assert condition(kube, "SpecAccepted")["message"].endswith("Set version to 1.1.0 first")
    wanting(kube, "1.1.0")
    assert is_ready(kube)


def test_brokers_that_are_away_are_remembered_at_their_level():
    """A cluster that hibernates tells nothing; what its metadata use it uses when it wakes."""
    kube = started("1.2.0")
    wanting(kube, "1.2.0", hibernate=True)
    assert not kube.pods()
    wanting(kube, "1.1.0", hibernate=True)
    assert condition(kube, "SpecAccepted")["reason"] == "ReleaseRefused"
    wanting(kube, "1.2.0")
    assert is_ready(kube)


def test_the_level_waits_for_a_member_that_is_away():
    """It may come back as it was; so may a disk that no pod asks for any more."""
    kube = started("1.1.0", updatePolicy=BY_HAND)
    wanting(kube, "1.2.0", updatePolicy=BY_HAND)
    kube.members["cluster-1"]["disk-away"] = "away-0"
    kube.known["disk-away"] = 7
    wanting(kube, "1.2.0")
    assert level(kube) == 7
    assert status(kube)["level"] == {"used": 7, "knownByAll": 7}
    del kube.members["cluster-1"]["disk-away"]
    converge(kube)
    assert level(kube) == 8


def test_a_member_that_comes_in_the_last_moment_and_knows_less_is_not_left_behind():
    kube = started("1.1.0", updatePolicy=BY_HAND)
    wanting(kube, "1.2.0", updatePolicy=BY_HAND)
    kube.put("orders", changed(SMALLEST, version="1.2.0"))
    finalize = kube.brokers.finalize_level

    async def late(host, level, secrets):
        kube.members["cluster-1"]["disk-late"] = "late-0"
        kube.known["disk-late"] = 7
        await finalize(host, level, secrets)

    kube.brokers.finalize_level = late
    seen = Operator(kube).once()
    assert level(kube) == 7
    assert "late-0 does not know" in " ".join(wait.detail for wait in seen.done.waits)


def test_an_image_that_nobody_knows_is_tried_on_one_follower_and_the_others_follow_where_it_fits():
    kube = started("1.1.0")
    kube.releases[UNKNOWN] = SimRelease(8, Wire(3, 4))
    imaged(kube, UNKNOWN)
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {UNKNOWN}
    assert level(kube) == 8
    tried = [message for message in messages(kube) if f"to try image {UNKNOWN}" in message]
    assert len(tried) == 1
    assert "orders-general-0" not in tried[0]


def test_an_image_that_the_others_do_not_understand_gets_no_second_broker_and_goes_back():
    kube = started("1.1.0")
    kube.releases[UNKNOWN] = SimRelease(8, Wire(5, 6))
    imaged(kube, UNKNOWN)
    tried = [name for name, pod in kube.pods().items() if pod["spec"]["containers"][0]["image"] == UNKNOWN]
    assert len(tried) == 1
    refused = condition(kube, "SpecAccepted")
    assert refused["reason"] == "ReleaseRefused"
    assert f"{tried[0]} tries image {UNKNOWN}" in refused["message"]
    assert "speaks wire versions 5 to 6, and" in refused["message"]
    assert level(kube) == 7
    wanting(kube, "1.1.0")
    assert is_ready(kube)
    assert versions(kube) == {"1.1.0"}


def test_a_tag_that_is_another_release_than_the_table_says_gets_no_second_broker():
    kube = started("1.1.0")
    kube.releases["walrus/walrus-node:1.2.0"] = SimRelease(8, Wire(5, 6))
    wanting(kube, "1.2.0")
    assert versions(kube) == {"1.1.0", "1.2.0"}
    assert condition(kube, "SpecAccepted")["reason"] == "ReleaseRefused"


def test_brokers_that_tell_neither_level_nor_wire_are_left_to_raise_it_themselves():
    """A release of before they told."""
    kube = started("1.1.0")
    look = kube.brokers.look

    async def silent(host):
        told = await look(host)
        return type(told)(**{**vars(told), "level": 0, "level_known": 0, "wire": None})

    kube.brokers.look = silent
    kube.table = ()
    wanting(kube, "1.2.0")
    assert versions(kube) == {"1.2.0"}
    assert is_ready(kube)


def test_the_operator_says_when_and_brokers_that_have_it_not_yet_are_not_restarted_for_it():
    kube = started("1.1.0")
    env = kube.objects[Ref("StatefulSet", "shop", "orders-general")]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "WALRUS_FINALIZE", "value": "manual"} in env
    inputs = json.loads(
        kube.objects[Ref("StatefulSet", "shop", "orders-general")]["metadata"]["annotations"][
            "walrus.dev/rendered-from"
        ]
    )
    assert "finalize" not in inputs


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_crash_at_any_write_leads_to_the_same_end(before):
    def story(crash_at):
        kube = started("1.1.0")
        first = kube.writes
        kube.crash_at, kube.crash_before = None if crash_at is None else first + crash_at, before
        kube.put("orders", changed(SMALLEST, version="1.2.0"))
        crashes = 0
        while True:
            try:
                converge(kube)
                break
            except Crash:
                crashes += 1
        assert versions(kube) == {"1.2.0"}
        assert level(kube) == 8
        assert is_ready(kube)
        assert crashes <= 1
        return kube.writes - first

    for crash_at in range(1, story(None) + 1):
        story(crash_at)


def test_two_pools_of_a_cluster_try_an_image_on_one_broker():
    more = [*SMALLEST["pools"], {"name": "more", "replicas": 2, "storage": {"claim": {"size": "1Gi"}}}]
    kube = started("1.1.0", pools=more)
    kube.releases[UNKNOWN] = SimRelease(8, Wire(5, 6))
    imaged(kube, UNKNOWN, pools=more)
    assert sum(pod["spec"]["containers"][0]["image"] == UNKNOWN for pod in kube.pods().values()) == 1


def test_a_single_broker_goes_up_and_back():
    kube = Watched()
    for version in ("1.1.0", "1.2.0", "1.1.0"):
        kube.put("orders", with_pool(changed(SMALLEST, version=version, updatePolicy=BY_HAND), replicas=1))
        converge(kube)
        assert versions(kube) == {version}
        assert is_ready(kube)
