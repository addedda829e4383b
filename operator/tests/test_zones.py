"""Brokers are spread over zones or nodes, tell where they are, and the status says whether a zone may be lost."""

import pytest
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed
from simkube import SimKube
from walrus_operator.objects import POD, STATEFUL_SET, Ref
from walrus_operator.observe.machines import ZONE

SET = Ref(STATEFUL_SET.name, "shop", "orders-general")
REQUIRED = changed(SMALLEST, topology={"required": True})
ON_HOSTS = changed(SMALLEST, topology={"spread": "host"})


def in_zones(*zones):
    kube = SimKube()
    kube.nodes.labels = {f"node-{number}": {ZONE: zone} for number, zone in enumerate(zones)}
    return kube


def run(kube, spec=SMALLEST):
    kube.put("orders", spec)
    converge(kube)
    return kube


def survives(kube):
    told = condition(kube, "SurvivesZoneLoss")
    return told["status"], told["reason"]


def template(kube):
    return kube.objects[SET]["spec"]["template"]["spec"]


def told_as_zone(kube):
    return [one for one in template(kube)["containers"][0]["env"] if one["name"] == "WALRUS_ZONE"]


def spreads(kube):
    return [
        (one["topologyKey"].rpartition("/")[2], one["whenUnsatisfiable"], one.get("minDomains"))
        for one in template(kube)["topologySpreadConstraints"]
    ]


def test_brokers_tell_the_zones_of_their_nodes_and_any_of_three_may_be_lost():
    kube = run(in_zones("a", "b", "c"))
    assert [row["zone"] for row in status(kube)["brokers"]] == ["a", "b", "c"]
    assert survives(kube) == ("True", "Spread")
    assert spreads(kube) == [("zone", "ScheduleAnyway", None), ("hostname", "ScheduleAnyway", None)]
    assert condition(kube, "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        ((), ("Unknown", "NoZones")),
        (("a", "a", "a"), ("False", "OneZone")),
        (("a", "a", "b"), ("False", "VotersInOneZone")),
        (("a", "b"), ("True", "Spread")),  # one node has told no zone: that is one of its own
    ],
)
def test_the_status_says_whether_a_zone_may_be_lost(zones, expected):
    kube = run(in_zones(*zones))
    assert survives(kube) == expected
    assert condition(kube, "Ready")["status"] == "True"


def test_segments_that_need_one_zone_are_told():
    kube = in_zones("a", "b", "c")
    kube.in_one_zone = 7
    run(kube)
    assert survives(kube) == ("False", "SegmentsInOneZone")
    assert condition(kube, "SurvivesZoneLoss")["message"].startswith("7 segments")


def test_without_a_leader_nobody_knows():
    kube = run(in_zones("a", "b", "c"))
    kube.down |= {"orders-general-1", "orders-general-2"}
    kube.unready |= kube.down
    kube.step()
    operator = Operator(kube)
    for pod in sorted(kube.down):
        del kube.objects[Ref(POD.name, "shop", pod)]
    operator.once()
    assert survives(kube) == ("Unknown", "Unknown")


def test_a_pool_may_say_its_zone():
    zones = [{**SMALLEST["pools"][0], "name": name, "replicas": 1, "zone": f"zone-{name}"} for name in "abc"]
    kube = run(SimKube(), changed(SMALLEST, pools=zones))
    assert [row["zone"] for row in status(kube)["brokers"]] == ["zone-a", "zone-b", "zone-c"]
    assert survives(kube) == ("True", "Spread")
    made = kube.objects[Ref(STATEFUL_SET.name, "shop", "orders-a")]["spec"]["template"]["spec"]
    assert [one["topologyKey"] for one in made["topologySpreadConstraints"]] == ["kubernetes.io/hostname"]


def test_brokers_that_are_spread_over_nodes_alone_know_of_no_zone():
    kube = run(in_zones("a", "b", "c"), ON_HOSTS)
    assert told_as_zone(kube) == []
    assert spreads(kube) == [("hostname", "ScheduleAnyway", None)]
    assert survives(kube) == ("Unknown", "NoZones")


@pytest.mark.parametrize(
    ("zones", "spec", "lacks"),
    [
        (("a", "a", "b"), REQUIRED, "3 zones that take pods, one for each copy of a record, and there are 2 (a, b)"),
        ((), REQUIRED, "3 zones that take pods, one for each copy of a record, and there are none"),
    ],
)
def test_with_too_few_zones_brokers_wait_and_the_plan_says_what_lacks(zones, spec, lacks):
    kube = run(in_zones(*zones), spec)
    assert status(kube)["plan"]["blockedBy"] == "TooFewZones"
    assert lacks in status(kube)["plan"]["detail"]
    assert condition(kube, "Ready")["status"] == "False"
    assert not all("nodeName" in pod["spec"] for pod in kube.pods().values())
    assert spreads(kube)[0] == ("zone", "DoNotSchedule", 3)

    kube.nodes.add("node-3")
    kube.nodes.labels |= {f"node-{number}": {ZONE: zone} for number, zone in enumerate("abbc")}
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert survives(kube) == ("True", "Spread")


def test_with_too_few_nodes_brokers_wait_as_well():
    kube = SimKube()
    kube.nodes.cordon("node-2")
    run(kube, changed(SMALLEST, topology={"spread": "host", "required": True}))
    assert status(kube)["plan"]["blockedBy"] == "TooFewZones"
    assert "wants 3 nodes that take pods" in status(kube)["plan"]["detail"]
    kube.nodes.uncordon("node-2")
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert {pod["spec"]["nodeName"] for pod in kube.pods().values()} == {"node-0", "node-1", "node-2"}


def test_pods_of_before_zones_go_on_and_a_restart_tells_the_zone():
    kube = run(in_zones("a", "b", "c"))
    before = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    told = kube.objects[SET]["metadata"]["annotations"]["walrus.dev/rendered-from"]
    assert "zone" not in told
    assert "spread" not in told
    converge(kube)
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == before
