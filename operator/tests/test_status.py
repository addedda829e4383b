"""Small parts that decide: differences, quantities, the disk's figure, Events."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from brokers import BROKER
from examples import SMALLEST
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.crdgen import crd
from walrus_operator.api.units import amount_of, bytes_of, milliseconds_of
from walrus_operator.desired.manifest import sealed
from walrus_operator.objects import Key
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Claim, Cluster, Replication, Snapshot
from walrus_operator.plan.actions import Done, Plan
from walrus_operator.plan.diff import differs
from walrus_operator.status.derive import derive
from walrus_operator.status.events import events

POD = Pod("orders-general-0", "u", "general", "r", "10.0.0.1", "n1", True, True, False, 0, None)


def told(broker=BROKER, pod=POD, before=None, claims=None):
    cluster = Cluster(Key("shop", "orders"), "uid", 1, SMALLEST, before or {}, None, deleting=False)
    pods = {pod.name: pod} if pod else {}
    brokers = {pod.name: broker} if pod and pod.running else {}
    made = {
        name: Claim("u", "general", 0, phase, "1Gi", bound=True, deleting=False)
        for name, phase in (claims or {}).items()
    }
    snapshot = Snapshot(cluster, {}, pods, made, brokers)
    return derive(snapshot, Plan(spec=parse_spec(SMALLEST)), Done(), datetime(2026, 1, 1, tzinfo=UTC))


def row(**given):
    return next(one for one in told(**given)["brokers"] if one["pod"] == POD.name)


def condition(type_, **given):
    found = next(one for one in told(**given)["conditions"] if one["type"] == type_)
    return found["status"], found["reason"]


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("1Gi", 2**30),
        ("1G", 10**9),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (2, 2),
        ("x", None),
        ("1X", None),
    ],
)
def test_quantities(quantity, amount):
    assert amount_of(quantity) == amount


def test_sizes_and_durations():
    assert bytes_of("64Mi") == 64 * 2**20
    assert [milliseconds_of(text) for text in ("5ms", "2s", "3m", "1h", "2d")] == [
        5,
        2000,
        180_000,
        3_600_000,
        172_800_000,
    ]
    assert milliseconds_of("1h30m") == 90 * 60_000
    assert milliseconds_of("2s500ms") == 2_500


MANIFEST = sealed(
    {
        "kind": "Service",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"ports": [{"port": 1}], "cpu": "1500m", "on": True},
    }
)


def observed(**spec):
    return {**MANIFEST, "spec": {**MANIFEST["spec"], **spec}}


def test_what_kubernetes_adds_or_writes_in_its_way_is_no_difference():
    assert not differs(MANIFEST, observed(clusterIP="10.0.0.1"))
    assert not differs(MANIFEST, observed(ports=[{"port": 1, "protocol": "TCP"}], cpu="1.5"))


@pytest.mark.parametrize(
    "spec",
    [{"ports": []}, {"ports": [{"port": 2}]}, {"cpu": "2"}, {"on": False}, {"ports": [{"port": 1}, {"port": 2}]}],
)
def test_what_someone_changed_is_a_difference(spec):
    assert differs(MANIFEST, observed(**spec))


def test_what_is_not_said_any_more_is_a_difference():
    assert differs(MANIFEST, {**observed(), "metadata": {"annotations": {"walrus.dev/hash": "another"}}})


def test_the_figure_of_a_disk_moves_in_steps_and_not_to_and_fro():
    def percent(exact, before):
        rows = {"brokers": [{"pod": POD.name, "diskPercent": before}]} if before is not None else {}
        return row(broker=replace(BROKER, bytes_free=1000 - exact, bytes_total=1000), before=rows)["diskPercent"]

    assert [percent(exact, None) for exact in (0, 49, 50, 999)] == [0, 0, 5, 95]
    assert [percent(exact, 50) for exact in (480, 500, 549, 570)] == [50, 50, 50, 50]
    assert [percent(exact, 50) for exact in (470, 580)] == [45, 55]


@pytest.mark.parametrize(
    ("pod", "broker", "state"),
    [
        (None, None, "Absent"),
        (replace(POD, deleting=True), BROKER, "Stopping"),
        (replace(POD, running=False, ready=False), None, "Pending"),
        (replace(POD, ready=False), None, "Starting"),
        (POD, None, "Unreachable"),
        (replace(POD, ready=False), replace(BROKER, cluster_id=""), "Waiting"),
        (replace(POD, ready=False), BROKER, "NotReady"),
        (POD, BROKER, "Serving"),
    ],
)
def test_what_a_broker_is_doing(pod, broker, state):
    assert row(pod=pod, broker=broker)["state"] == state


def test_what_keeps_a_broker_from_serving_is_told():
    waiting = replace(BROKER, missing=("registration: not in the metadata yet", "lease: none"))
    assert (
        row(pod=replace(POD, ready=False), broker=waiting)["detail"]
        == "registration: not in the metadata yet; lease: none"
    )
    unscheduled = replace(POD, running=False, ready=False, trouble="Unschedulable: no node fits")
    assert row(pod=unscheduled)["detail"] == "Unschedulable: no node fits"
    assert "detail" not in row()


def test_a_backend_that_is_not_the_one_asked_for_is_told_with_its_reason():
    fallen = replace(BROKER, backend_asked="direct", backend_reason="O_DIRECT: not supported by tmpfs")
    assert condition("BackendAsRequested", broker=fallen) == ("False", "FellBack")
    assert row(broker=fallen)["backendReason"] == "O_DIRECT: not supported by tmpfs"
    auto = replace(BROKER, backend_asked="auto", backend_reason="direct is not possible here")
    assert condition("BackendAsRequested", broker=auto) == ("True", "AsRequested")
    assert condition("BackendAsRequested", broker=None) == ("Unknown", "Unknown")


def test_synced_writes_through_the_page_cache_are_told_with_their_reason():
    assert row()["syncedWrites"] == "direct"
    cached = replace(BROKER, synced_writes="cached", cached_reason="direct: Invalid argument (os error 22)")
    shown = row(broker=cached)
    assert (shown["syncedWrites"], shown["cachedReason"]) == ("cached", "direct: Invalid argument (os error 22)")
    (answer,) = (each for each in told(broker=cached)["conditions"] if each["type"] == "BackendAsRequested")
    assert (answer["status"], answer["reason"]) == ("True", "AsRequested"), "the backend is the one asked for"
    assert answer["message"].endswith("of orders-general-0: direct: Invalid argument (os error 22)")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({}, ("True", "Healthy")),
        ({"broker": replace(BROKER, bytes_free=5)}, ("False", "DiskPressure")),
        ({"claims": {"data-orders-general-0": "Pending"}}, ("False", "ClaimPending")),
        ({"claims": {"data-orders-general-0": "Lost"}}, ("False", "LostDisk")),
        ({"broker": None}, ("Unknown", "Unknown")),
    ],
)
def test_the_health_of_storage(given, answer):
    assert condition("StorageHealthy", **given) == answer


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({}, ("True", "Whole")),
        ({"broker": replace(BROKER, under_replicated=4)}, ("False", "UnderReplicated")),
        ({"broker": replace(BROKER, replication=Replication(1, 1))}, ("False", "Progressing")),
        ({"broker": replace(BROKER, role="Follower")}, ("Unknown", "Unknown")),
        ({"broker": None}, ("Unknown", "Unknown")),
    ],
)
def test_whether_every_segment_has_its_copies(given, answer):
    assert condition("Replicated", **given) == answer


def test_the_replication_in_force_is_told():
    assert told()["replication"] == {"factor": 3, "writeQuorum": 2, "spareBrokers": 1}
    assert "replication" not in told(broker=replace(BROKER, replication=None))


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({}, ("True", "Serving")),
        ({"broker": replace(BROKER, role="Follower")}, ("False", "NoLeader")),
        ({"pod": replace(POD, ready=False)}, ("False", "NoEndpoints")),
        ({"broker": replace(BROKER, cluster_id="")}, ("False", "NotFounded")),
        ({"broker": None, "before": {"clusterId": "c"}}, ("Unknown", "Unknown")),
    ],
)
def test_availability(given, answer):
    assert condition("Available", **given) == answer


def test_the_time_of_an_answer_is_when_it_last_changed():
    first = told()
    again = derive(
        Snapshot(
            Cluster(Key("shop", "orders"), "uid", 1, SMALLEST, first, None, deleting=False),
            {},
            {POD.name: POD},
            {},
            {POD.name: BROKER},
        ),
        Plan(spec=parse_spec(SMALLEST)),
        Done(),
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    assert again == first


def test_a_broker_that_is_lost_and_comes_back_is_an_event_each():
    serving = told()
    lost = told(pod=replace(POD, running=False, ready=False), before=serving)
    assert [str(event.reason) for event in events(serving, lost, Done())] == ["BrokerLost"]
    assert [str(event.reason) for event in events(lost, serving, Done())] == ["BrokerServing"]
    assert events(serving, serving, Done()) == []


def test_a_broker_that_was_there_and_answers_no_more_is_cut_off_and_not_starting():
    silent = replace(POD, ready=False)
    before = {"brokers": [{"pod": POD.name, "pool": "general", "state": "Serving", "restarts": 0}]}
    assert row(broker=None, pod=silent, before=before)["state"] == "Unreachable"
    assert row(broker=None, pod=silent)["state"] == "Starting"
    assert row(broker=None, pod=replace(silent, restarts=1), before=before)["state"] == "Starting"


def test_a_cluster_that_nobody_looks_after_says_so():
    """The definition's default: what no operator has written, none watches."""
    version = crd()["spec"]["versions"][0]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["default"] == {"phase": "NotWatched"}
    assert told()["phase"] != "NotWatched"  # every operator writes a phase other than the default
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert {"Replicated", "Spec", "Phase"} <= set(columns)


@pytest.mark.parametrize(
    ("state", "last", "begins"),
    [
        (
            {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
            {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            "CrashLoopBackOff: OOMKilled: it used more memory than resources.limits",
        ),
        (
            {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            {},
            "OOMKilled: it used more memory than resources.limits",
        ),
        (
            {"running": {}},
            {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            "OOMKilled: it used more memory than resources.limits",
        ),
        ({"terminated": {"reason": "Error", "exitCode": 2}}, {}, "Error, exit code 2"),
    ],
    ids=["held back", "ended", "runs again, until the next time", "ended by itself"],
)
def test_a_broker_that_was_killed_for_its_memory_says_so(state, last, begins):
    """It was named only while Kubernetes held its container back: most of the time it runs, and is never ready."""
    container = {"state": state, "lastState": last, "restartCount": 4, "ready": False}
    pod = Pod.parse({"metadata": {"name": "a", "uid": "u"}, "status": {"containerStatuses": [container]}})
    assert pod.trouble.startswith(begins)
    told_by_broker = replace(BROKER, missing=("catches up",))
    assert row(broker=told_by_broker, pod=replace(POD, ready=False, trouble=pod.trouble))["detail"].startswith(begins)


def test_what_happened_before_a_broker_served_is_no_trouble():
    container = {
        "state": {"running": {}},
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
        "ready": True,
    }
    prepared = {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}, "ready": True}
    status = {"initContainerStatuses": [prepared], "containerStatuses": [container]}
    assert Pod.parse({"metadata": {"name": "a", "uid": "u"}, "status": status}).trouble is None
