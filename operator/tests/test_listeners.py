"""Listeners for clients outside of Kubernetes: which address each broker is told to tell, and when another."""

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import SMALLEST, changed, with_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from simkube import SimKube
from test_invariants import Watched
from walrus_operator.kube.api import Denied, Refused
from walrus_operator.objects import Ref

KAFKA = {"name": "kafka"}
PORTS = {"name": "outside", "protocol": "kafka", "port": 9094, "type": "NodePort"}
BALANCED = {"name": "outside", "protocol": "kafka", "port": 9094, "type": "LoadBalancer"}
NAMED = {**BALANCED, "brokers": {"advertisedHost": "b{ordinal}.example.com"}}


def spec(*listeners, **fields):
    return changed(with_pool(SMALLEST, **fields), listeners=[KAFKA, *listeners])


def started(*listeners, **fields):
    kube = SimKube()
    kube.put("orders", spec(*listeners, **fields))
    converge(kube)
    return kube


def told(kube):
    """What each broker's file holds."""
    return {name: pod["metadata"]["annotations"].get("walrus.dev/advertised") for name, pod in kube.pods().items()}


def port_of(kube, service):
    return kube.objects[Ref("Service", "shop", service)]["spec"]["ports"][0]["nodePort"]


def node_address(kube, pod):
    return kube.nodes.addresses[kube.pods()[pod]["spec"]["nodeName"]]["InternalIP"]


def uids(kube):
    return {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}


def row(kube, name="outside"):
    return next(one for one in status(kube)["listeners"] if one["name"] == name)


def expected_ports(kube, brokers=3):
    """Each broker at its node, by the port of its own Service."""
    pods = [f"orders-general-{ordinal}" for ordinal in range(brokers)]
    return {pod: f"kafka/outside={node_address(kube, pod)}:{port_of(kube, f'{pod}-outside')}" for pod in pods}


def test_by_default_one_listener_of_each_protocol_is_inside():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    converge(kube)
    assert [one["addresses"] for one in status(kube)["listeners"]] == [
        ["orders.shop.svc:9092"],
        ["orders.shop.svc:8080"],
        ["orders.shop.svc:9090"],
    ]
    assert set(told(kube).values()) == {None}
    assert kube.calls["get", "Node"] == 0


def test_a_listener_that_is_added_is_told_broker_by_broker_once_they_listen():
    kube = started()
    before = uids(kube)
    kube.put("orders", spec(PORTS))
    converge(kube)
    assert told(kube) == expected_ports(kube)
    assert not set(before.values()) & set(uids(kube).values()), "they restart once, to listen there"
    assert row(kube)["brokers"] == [
        {"pod": pod, "address": line.partition("=")[2]} for pod, line in expected_ports(kube).items()
    ]
    assert row(kube)["addresses"] == [f"10.0.0.{number}:{port_of(kube, 'orders-outside')}" for number in (1, 2, 3)]
    assert condition(kube, "Ready")["status"] == "True"


def test_a_pod_that_moves_tells_its_new_node_and_no_other_broker_notices():
    kube = started(PORTS)
    kube.nodes.volumes_move = True
    before = told(kube)
    moved = next(pod for pod, found in kube.pods().items() if found["spec"]["nodeName"] == "node-1")
    kube.nodes.add("node-3")
    kube.nodes.drain("node-1")
    converge(kube)
    assert kube.pods()[moved]["spec"]["nodeName"] == "node-3"
    after = told(kube)
    assert after == expected_ports(kube)
    assert {pod for pod in after if after[pod] != before[pod]} == {moved}
    said = {found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"}
    assert f"Advertise {moved} at {after[moved]}" in said


def test_a_broker_that_is_added_has_an_address_of_its_own():
    kube = started(PORTS)
    before = uids(kube)
    kube.put("orders", spec(PORTS, replicas=4))
    converge(kube)
    assert told(kube) == expected_ports(kube, 4)
    assert before.items() <= uids(kube).items(), "nobody restarts for it"


def test_a_listener_that_is_taken_away_goes_with_its_services():
    kube = started(PORTS)
    kube.put("orders", spec())
    converge(kube)
    assert not [ref for ref in kube.objects if ref.kind == "Service" and ref.name.endswith("outside")]
    assert not any(told(kube).values())
    assert [one["name"] for one in status(kube)["listeners"]] == ["kafka"]


def test_another_type_tells_other_addresses_and_restarts_nobody():
    kube = started(PORTS)
    before = uids(kube)
    kube.put("orders", spec(BALANCED))
    converge(kube)
    assert told(kube) == {
        f"orders-general-{ordinal}": f"kafka/outside=orders-general-{ordinal}-outside.lb.example.com:9094"
        for ordinal in range(3)
    }
    kube.put("orders", spec(PORTS))
    converge(kube)
    assert told(kube) == expected_ports(kube)
    assert uids(kube) == before


def test_a_load_balancer_that_is_not_there_yet_is_waited_for_and_said():
    kube = SimKube()
    kube.balances = False
    kube.put("orders", spec(BALANCED))
    converge(kube)
    assert not any(told(kube).values())
    assert status(kube)["plan"]["blockedBy"] == "AddressPending"
    assert "Service orders-general-0-outside has no address of a load balancer yet" in status(kube)["plan"]["detail"]
    assert condition(kube, "Available")["status"] == "True", "clients inside are served"
    assert row(kube)["addresses"] == []
    kube.balances = True
    converge(kube)
    assert told(kube)["orders-general-2"] == "kafka/outside=orders-general-2-outside.lb.example.com:9094"
    assert "plan" not in status(kube)
    assert row(kube)["addresses"] == ["orders-outside.lb.example.com:9094"]


def test_a_host_of_ones_own_is_told_whatever_the_load_balancer_is_called():
    kube = started(NAMED)
    assert told(kube)["orders-general-1"] == "kafka/outside=b1.example.com:9094"


@pytest.mark.parametrize(
    ("wanted", "host"),
    [(None, "203.0.113.7"), ("InternalIP", "10.0.0.9"), ("InternalDNS", "203.0.113.7"), ("Hostname", "machine")],
)
def test_the_address_of_a_node_is_of_the_wanted_type_or_the_first_of_an_order(wanted, host):
    kube = SimKube()
    for name in ("node-0", "node-1", "node-2"):
        kube.nodes.addresses[name] = {"InternalIP": "10.0.0.9", "Hostname": "machine", "ExternalIP": "203.0.113.7"}
    kube.put("orders", spec({**PORTS, **({"nodeAddress": wanted} if wanted else {})}))
    converge(kube)
    assert {line.partition("=")[2].rpartition(":")[0] for line in told(kube).values()} == {host}


class Blind(SimKube):
    """Nobody granted a look at nodes."""

    async def get(self, ref):
        if ref.kind == "Node":
            raise Denied("nodes is forbidden")
        return await super().get(ref)


def test_who_may_not_look_at_nodes_takes_what_their_kubelets_told():
    kube = Blind()
    kube.put("orders", spec(PORTS))
    converge(kube)
    assert told(kube) == expected_ports(kube)
    kube.put("orders", spec({**PORTS, "nodeAddress": "ExternalIP"}))
    converge(kube)
    assert told(kube) == expected_ports(kube), "it goes on with what it has, and says what it lacks"
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    assert "rbac.clusterRole" in status(kube)["plan"]["detail"]


def test_an_address_that_somebody_else_writes_is_put_right_and_a_service_that_is_deleted_comes_back():
    kube = started(PORTS)
    kube.pods()["orders-general-0"]["metadata"]["annotations"]["walrus.dev/advertised"] = "kafka/outside=evil:1"
    kube.remove("Service", "orders-general-1-outside")
    converge(kube)
    assert told(kube) == expected_ports(kube)


def test_a_port_of_the_nodes_that_kubernetes_refuses_holds_up_that_listener_only():
    kube = SimKube()
    kube.refused[Ref("Service", "shop", "orders-outside")] = Refused("provided port is already allocated")
    kube.put("orders", spec(PORTS))
    converge(kube)
    assert condition(kube, "Available")["status"] == "True"
    assert condition(kube, "SpecAccepted")["reason"] == "ObjectRefused"
    assert told(kube) == expected_ports(kube)


class Hasty(SimKube):
    """A pod goes in the very moment in which it is told something."""

    hasty = False

    async def apply(self, manifest):
        if self.hasty and manifest["kind"] == "Pod":
            self.collect(Ref("Pod", "shop", manifest["metadata"]["name"]))
        return await super().apply(manifest)


def test_a_pod_that_was_replaced_meanwhile_is_not_told_of_its_former_node():
    kube = Hasty()
    kube.put("orders", spec(PORTS))
    converge(kube)
    kube.pods()["orders-general-0"]["metadata"]["annotations"].pop("walrus.dev/advertised")
    kube.hasty = True
    Operator(kube).once()
    assert "orders-general-0" not in kube.pods(), "nothing was made in its place"
    assert status(kube)["plan"]["blockedBy"] == "ChangedMeanwhile"
    kube.hasty = False
    converge(kube)
    assert told(kube) == expected_ports(kube)


def test_an_operator_that_dies_at_any_write_leaves_nobody_with_a_wrong_address():
    kube = SimKube()
    kube.put("orders", spec(replicas=1) | {"replication": {"factor": 1}})
    converge(kube)
    outside = spec(PORTS, replicas=1) | {"replication": {"factor": 1}}

    def check(kube):
        assert told(kube) == expected_ports(kube, 1)

    crash_at_each_write(kube, [lambda kube: kube.put("orders", outside)], check)


LISTENERS = [(), (PORTS,), (BALANCED,), (NAMED,), ({**PORTS, "port": 9095, "admin": True},)]
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("spec"), st.tuples(st.sampled_from(LISTENERS), st.sampled_from([3, 4]))),
        st.tuples(st.sampled_from(["drain", "uncordon", "fail", "back"]), st.sampled_from(["node-0", "node-1"])),
        st.tuples(st.just("balances"), st.booleans()),
        st.tuples(st.just("pass"), st.integers(1, 4)),
    ),
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(MOVES)
def test_in_the_end_each_broker_tells_where_it_is_whatever_happened_before(moves):
    kube, replicas = Watched(), 3
    kube.nodes.volumes_move = True
    kube.put("orders", spec(PORTS))
    for what, value in moves:
        if what == "spec":
            replicas = max(replicas, value[1])  # a cluster does not shrink
            kube.put("orders", spec(*value[0], replicas=replicas))
        elif what == "balances":
            kube.balances = value
        elif what == "pass":
            for _ in range(value):
                Operator(kube).once()
                kube.step()
        else:
            getattr(kube.nodes, what)(value)
    kube.nodes.heal()
    kube.put("orders", spec(PORTS, replicas=replicas))
    converge(kube)
    assert told(kube) == expected_ports(kube, replicas)
