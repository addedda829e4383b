"""Settings of brokers in the spec: which there are, how they reach brokers, and how they are taken back."""

import re
from pathlib import Path

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge
from examples import SMALLEST, changed
from pydantic import ValidationError
from simapi import Crash
from simkube import SimKube
from walrus_node.config import _parser, parse_config
from walrus_operator.api.cluster import parse_spec
from walrus_operator.api.config import DYNAMIC, FIELDS, LOG_LEVEL, STATIC
from walrus_operator.objects import Ref

ROOT = Path(__file__).parents[2]
ACCEPTED = Ref("ConfigMap", "shop", "orders-accepted")
SET = Ref("StatefulSet", "shop", "orders-general")
VALUES = {
    "no-auto-create-topics": "true",
    "memory-budget": "64MiB",
    "frame-bytes-max": 4096,
    "connections-max": 9,
    "connections-per-address-max": 9,
    "first-byte-timeout": "5s",
    "header-timeout": "6s",
    "idle-timeout": "5m",
    "text-idle-timeout": "2h",
    "hand-over-timeout": "0",
    "otlp-endpoint": "http://collector:4317",
    "otlp-share": "0.5",
}
"""A value of each option that is not its default."""
NOT_OF_USERS = {
    *("node-id", "node-name", "data-dir", "bootstrap", "bootstrap-name", "bootstrap-nodes", "replaces", "join"),
    *("bind-host", "advertise-host", "raft-host", "raft-advertise-host", "client-host", "admin-host"),
    *(f"{listener}-port" for listener in ("raft", "peer", "client", "grpc", "kafka", "http", "admin")),
    *("advertised-file", "secret-file", "log-file", "test-controls", "test-wire", "test-level", "version"),
}
"""Options that the operator sets, or that make no sense in a pod."""


def spec_with(**config):
    return changed(SMALLEST, config=config)


def started(spec=SMALLEST):
    kube = SimKube()
    kube.put("orders", spec)
    converge(kube)
    return kube


def entries(kube):
    ((_, entries),) = kube.config.values()
    return {name: value for name, value in entries.items() if not name.startswith("segments.max_")}


def levels(kube):
    return {pod["metadata"]["name"]: kube.levels.get(pod["metadata"]["uid"], "info") for pod in kube.pods().values()}


def uids(kube):
    return {pod["metadata"]["uid"] for pod in kube.pods().values()}


def test_every_option_of_a_node_is_static_or_has_a_field_or_is_the_operators():
    options = {action.option_strings[0].removeprefix("--") for action in _parser()._actions} - {"-h"}
    assert options == {*STATIC, *(name for name in FIELDS if "." not in name), *NOT_OF_USERS}


def test_every_setting_of_a_cluster_is_dynamic_or_has_a_field():
    source = (ROOT / "storage_core/crates/metadata/src/cluster_config.rs").read_text()
    found = re.findall(r'Key \{ name: "([\w.]+)", min: ([^,]+), max: ([^,]+),', source)
    assert {name for name, _, _ in found} == {*DYNAMIC, *(name for name in FIELDS if "." in name)} - {LOG_LEVEL}
    for name, *bounds in found:
        least, most = (eval(text.replace("DAY_MS", "86_400_000")) for text in bounds)
        if name in DYNAMIC:
            outside = [str(most + 1), *([str(least - 1)] if least else [])]
            assert [DYNAMIC[name](str(value)) for value in (least, most)] == [None, None]
            assert all(DYNAMIC[name](value) for value in outside)


@pytest.mark.parametrize("name", STATIC)
def test_a_node_takes_each_value_that_is_accepted(name):
    (option,) = parse_spec(spec_with(static={name: VALUES[name]})).config.options.items()
    environment = {f"WALRUS_{option[0].replace('-', '_').upper()}": option[1]}
    assert parse_config([], environment) != parse_config([], {})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"dynamic": {"copies.move_max": 3}},
            "there is no dynamic setting 'copies.move_max'.*nearest is copies.moves_max",
        ),
        ({"static": {"memory_budget": "1GiB"}}, "there is no static setting 'memory_budget'.*nearest is memory-budget"),
        ({"static": {"copies.grace_ms": 3}}, "copies.grace_ms is dynamic: write it under config.dynamic"),
        ({"dynamic": {"memory-budget": "1GiB"}}, "memory-budget is static: write it under config.static"),
        ({"dynamic": {"segments.max_bytes": 3}}, "has a place of its own: spec.segments.maxBytes"),
        ({"static": {"backend": "mmap"}}, r"has a place of its own: spec.pools\[\].backend"),
        ({"static": {"data-dir": "/data"}}, "the operator sets it"),
        ({"dynamic": {"copies.moves_max": -1}}, "copies.moves_max must be a number from 0 to 10000, not '-1'"),
        ({"dynamic": {"copies.moves_max": "many"}}, "copies.moves_max must be a number"),
        ({"dynamic": {"log.level": "loud"}}, "log.level must be error, warn, info"),
        ({"dynamic": {"log.level": 3}}, "log.level must be error, warn, info"),
        ({"static": {"memory-budget": "1MiB"}}, "memory-budget must be an amount of 32MiB or more"),
        ({"static": {"idle-timeout": "0s"}}, "idle-timeout must be a time"),
        ({"static": {"otlp-share": "1.5"}}, "otlp-share must be a number from 0 to 1"),
        ({"static": {"otlp-endpoint": "https://a:1"}}, "otlp-endpoint must be http://HOST:PORT"),
        ({"static": {"no-auto-create-topics": "yes"}}, "no-auto-create-topics must be"),
    ],
)
def test_what_brokers_would_not_take_is_refused_with_a_sentence(config, says):
    with pytest.raises(ValidationError, match=says):
        parse_spec(spec_with(**config))


def test_a_setting_that_nobody_knows_changes_nothing_and_the_condition_has_the_sentence():
    kube = started()
    before, had = uids(kube), entries(kube)
    kube.put("orders", changed(spec_with(dynamic={"copies.mooves": 1}), version="2.0.0"))
    converge(kube)
    told = condition(kube, "SpecAccepted")
    assert (told["status"], told["reason"]) == ("False", "Invalid")
    assert told["message"].startswith("spec.config.dynamic: there is no dynamic setting 'copies.mooves'")
    assert (uids(kube), entries(kube)) == (before, had)


def test_dynamic_settings_reach_brokers_without_a_restart_and_go_back_where_they_came_from():
    kube = started()
    before, had = uids(kube), entries(kube)
    kube.put("orders", spec_with(dynamic={"copies.moves_max": 3, "scrub.interval_ms": "60000", "log.level": "debug"}))
    converge(kube)
    assert entries(kube) == had | {"copies.moves_max": 3, "scrub.interval_ms": 60000}
    assert set(levels(kube).values()) == {"debug"}
    assert kube.objects[Ref("ConfigMap", "shop", "orders-config")]["data"]["WALRUS_LOG_LEVEL"] == "debug"
    assert Operator(kube).once().plan.is_idle
    kube.put("orders", SMALLEST)
    converge(kube)
    assert entries(kube) == had
    assert set(levels(kube).values()) == {"info"}
    assert uids(kube) == before
    assert "settings" not in kube.objects[ACCEPTED]["data"]
    assert Operator(kube).once().plan.is_idle


def test_what_others_have_set_stays_as_it_is():
    kube = started()
    (cluster,) = kube.config
    version, had = kube.config[cluster]
    kube.config[cluster] = (version + 1, had | {"copies.grace_ms": 5})
    kube.levels |= dict.fromkeys(uids(kube), "warn")
    kube.put("orders", spec_with(dynamic={"copies.moves_max": 3}))
    converge(kube)
    kube.put("orders", SMALLEST)
    converge(kube)
    assert "copies.grace_ms" in entries(kube)
    assert "copies.moves_max" not in entries(kube)
    assert set(levels(kube).values()) == {"warn"}


def test_a_broker_that_was_started_again_logs_as_it_shall():
    kube = started(spec_with(dynamic={"log.level": "debug"}))
    del kube.objects[Ref("Pod", "shop", "orders-general-1")]
    converge(kube)
    assert set(levels(kube).values()) == {"debug"}


def test_a_broker_that_does_not_take_the_level_holds_up_nothing_else():
    kube = started()
    kube.refuses_config = True
    kube.put("orders", changed(spec_with(dynamic={"log.level": "debug"}), version="2.0.0"))
    converge(kube)
    assert condition(kube, "SpecAccepted")["reason"] == "ConfigRefused"
    assert {pod["spec"]["containers"][0]["image"] for pod in kube.pods().values()} == {"walrus/walrus-node:2.0.0"}


def test_static_settings_restart_the_brokers_one_after_the_other():
    kube = started()
    before = uids(kube)
    kube.put("orders", spec_with(static={"no-auto-create-topics": "true", "hand-over-timeout": "1m"}))
    converge(kube)
    assert not uids(kube) & before
    for pod in kube.pods().values():
        told = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert (told["WALRUS_NO_AUTO_CREATE_TOPICS"], told["WALRUS_HAND_OVER_TIMEOUT"]) == ("true", "1m")
        assert pod["spec"]["terminationGracePeriodSeconds"] == 80
    assert condition(kube, "Ready")["status"] == "True"


def test_a_setting_is_taken_back_by_the_next_operator_where_one_died_once_the_spec_was_accepted():
    kube = started(spec_with(dynamic={"copies.moves_max": 3}))
    kube.put("orders", SMALLEST)
    kube.crash_at = kube.writes + 1
    with pytest.raises(Crash):
        converge(kube)
    assert "config" not in kube.objects[ACCEPTED]["data"]["spec"]
    converge(kube)
    assert "copies.moves_max" not in entries(kube)


def test_an_operator_that_dies_at_any_write_leaves_no_setting_behind():
    def check(kube):
        assert entries(kube).keys().isdisjoint({"copies.moves_max", "copies.grace_ms"})
        assert set(levels(kube).values()) == {"info"}
        assert "settings" not in kube.objects[ACCEPTED]["data"]

    crash_at_each_write(
        started(spec_with(dynamic={"copies.moves_max": 3, "log.level": "debug"})),
        [
            lambda kube: kube.put("orders", spec_with(dynamic={"copies.grace_ms": 7})),
            lambda kube: kube.put("orders", SMALLEST),
        ],
        check,
    )


def test_the_guide_names_every_setting():
    guide = (ROOT / "docs/guides/operating.md").read_text()
    assert [name for name in {**DYNAMIC, **STATIC} if f"`{name}`" not in guide] == []
