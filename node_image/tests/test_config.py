"""Options: the original's flags and variables keep working, and a wrong one says what is wrong."""

from pathlib import Path

import pytest
from walrus_node.address import Address
from walrus_node.client_listener import ClientListener
from walrus_node.config import Config, Limits, parse_config


def parse(*arguments: str, **environment: str) -> Config:
    return parse_config(arguments, environment)


def test_the_image_names_the_backend_that_the_guide_says() -> None:
    root = Path(__file__).parents[2]
    said = dict(
        line.removeprefix("ENV ").split("=", 1)
        for line in (root / "node_image" / "Dockerfile").read_text().splitlines()
        if line.startswith("ENV WALRUS_")
    )
    assert parse(**said).backend == "mmap"
    guide = (root / "docs" / "guides" / "storage.md").read_text()
    assert "`mmap` is the default of a WalrusCluster and of the image, `auto` that of `walrus-node`" in guide


def test_without_flags_the_documented_defaults_hold() -> None:
    config = parse()
    assert config.data_dir == Path("data")
    assert (config.raft, config.text) == (Address("127.0.0.1", 6000), Address("127.0.0.1", 8080))
    assert (config.grpc.port, config.peer.port, config.http.port) == (9090, 6001, 8088)
    assert (config.segment_entries_max, config.monitor_check_ms) == (1_000_000, 10_000)
    assert (config.segment_age_ms_max, config.segment_age_ms_min) == (0, 1_000)
    assert (config.backend, config.fsync, config.auto_create_topics) == ("auto", "each", True)
    assert (config.node_id, config.join, config.bootstrap, config.zone) == (None, (), False, "")
    assert config.limits == Limits(
        connections_max=20_000,
        connections_per_address_max=20_000,
        first_byte_ms=60_000,
        header_ms=5_000,
        idle_ms=600_000,
        text_idle_ms=3_600_000,
    )
    assert config.memory_budget_bytes is None
    assert config.hand_over_ms == 10_000
    assert config.finalizes


def test_who_wants_to_say_when_a_release_is_final_starts_nodes_so() -> None:
    assert not parse("--finalize", "manual").finalizes
    assert not parse(WALRUS_FINALIZE="manual").finalizes
    with pytest.raises(SystemExit):
        parse("--finalize", "later")


def test_a_collector_of_spans_is_taken_from_its_usual_variable() -> None:
    assert parse().otlp_endpoint is None
    assert parse(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4317").otlp_endpoint == "http://collector:4317"
    config = parse("--otlp-endpoint", "http://127.0.0.1:4317", "--otlp-share", "0.01")
    assert (config.otlp_endpoint, config.otlp_share) == ("http://127.0.0.1:4317", 0.01)


@pytest.mark.parametrize(
    "flags",
    [("--otlp-endpoint", "collector:4317"), ("--otlp-endpoint", "https://collector:4317"), ("--otlp-share", "1.5")],
)
def test_a_collector_that_cannot_be_asked_is_refused(flags: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        parse(*flags)


def test_variables_of_the_original_work() -> None:
    config = parse(
        WALRUS_DATA_DIR="/a",
        RAFKA_DATA_DIR="/b",
        WALRUS_MAX_SEGMENT_ENTRIES="10",
        WALRUS_MONITOR_CHECK_MS="200",
        WALRUS_DISABLE_IO_URING="",
        RUST_LOG="debug",
    )
    assert config.data_dir == Path("/a")
    assert (config.segment_entries_max, config.monitor_check_ms) == (10, 200)
    assert (config.backend, config.log_level) == ("mmap", "debug")


def test_flags_win_over_variables() -> None:
    assert parse("--data-dir", "/flag", WALRUS_DATA_DIR="/variable").data_dir == Path("/flag")
    assert parse(RAFKA_DATA_DIR="/rafka").data_dir == Path("/rafka")


def test_flags_of_the_original_work() -> None:
    config = parse(
        *("--node-id", "2", "--raft-port", "6002", "--raft-host", "0.0.0.0", "--raft-advertise-host", "node2"),
        *("--client-port", "9092", "--client-host", "::1", "--join", "node1:6001", "--log-file", "x.log"),
        *("--secret-file", "secret"),
    )
    assert (config.node_id, config.join) == (2, (Address("node1", 6001),))
    assert str(config.text) == "[::1]:9092"
    assert str(config.advertised(config.raft)) == "node2:6002"


def test_every_option_has_a_variable_but_founding() -> None:
    config = parse(
        WALRUS_NODE_NAME="orders-1",
        WALRUS_NODE_ID="4",
        WALRUS_BIND_HOST="0.0.0.0",
        WALRUS_SECRET_FILE="/secret",
        WALRUS_CONNECTIONS_MAX="500",
        WALRUS_IDLE_TIMEOUT="2m",
        WALRUS_MEMORY_BUDGET="64MiB",
        WALRUS_ADVERTISE_HOST="orders-1.orders-brokers.ns.svc",
        WALRUS_JOIN="orders-brokers.ns.svc:6000, other:6001",
        WALRUS_ADMIN_PORT="7091",
        WALRUS_BACKEND="direct",
        WALRUS_FSYNC="never",
        WALRUS_NO_AUTO_CREATE_TOPICS="true",
        WALRUS_TEST_CONTROLS="0",
        WALRUS_SEGMENT_AGE_MAX="",
        WALRUS_BOOTSTRAP="127.0.0.1:9090",
    )
    assert (config.node_name, config.node_id, config.bootstrap) == ("orders-1", 4, False)
    assert config.join == (Address("orders-brokers.ns.svc", 6000), Address("other", 6001))
    assert {listener.host for listener in (config.raft, config.text, config.http, config.admin)} == {"0.0.0.0"}
    assert config.admin.port == 7091
    assert (config.backend, config.fsync) == ("direct", "never")
    assert (config.auto_create_topics, config.test_controls) == (False, False)
    assert config.secret_file == Path("/secret")
    assert (config.limits.connections_max, config.limits.idle_ms) == (500, 120_000)
    assert config.memory_budget_bytes == 64 << 20
    assert str(config.advertised(config.grpc)) == "orders-1.orders-brokers.ns.svc:9090"
    assert config.raft_advertise_host == "orders-1.orders-brokers.ns.svc"


def test_what_kubernetes_tells_of_a_service_of_that_name_is_no_option() -> None:
    """A service called walrus-client in the namespace of a pod."""
    assert parse(WALRUS_CLIENT_PORT="tcp://10.0.0.7:80").text.port == 8080


def test_hosts_of_their_own_win_over_the_common_ones() -> None:
    config = parse(
        *("--bind-host", "0.0.0.0", "--client-host", "127.0.0.2", "--admin-host", "127.0.0.3"),
        *("--advertise-host", "all", "--raft-advertise-host", "metadata", "--secret-file", "secret"),
    )
    assert [a.host for a in (config.raft, config.peer, config.text, config.grpc, config.http, config.admin)] == [
        *("0.0.0.0", "0.0.0.0", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3")
    ]
    assert (config.advertise_host, config.raft_advertise_host) == ("all", "metadata")


def test_the_named_node_founds_and_others_join() -> None:
    variables = {"WALRUS_BOOTSTRAP_NAME": "orders-0", "WALRUS_JOIN": "orders-brokers:6000"}
    assert parse(WALRUS_NODE_NAME="orders-0", **variables).bootstrap
    assert not parse(WALRUS_NODE_NAME="orders-1", **variables).bootstrap
    assert parse(**variables).bootstrap_nodes == 1
    assert parse(WALRUS_BOOTSTRAP_NODES="3", **variables).bootstrap_nodes == 3


def test_join_may_be_repeated_and_wins_over_its_variable() -> None:
    config = parse("--join", "a:1", "--join=b:2,c:3", WALRUS_JOIN="d:4")
    assert [str(address) for address in config.join] == ["a:1", "b:2", "c:3"]


def test_units_are_understood() -> None:
    config = parse("--segment-bytes-max", "64MiB", "--segment-age-max", "12h", "--fsync", "200ms")
    assert (config.segment_bytes_max, config.segment_age_ms_max, config.fsync) == (2**26, 43_200_000, "200ms")


def test_the_write_quorum_is_the_majority_of_the_replicas_unless_told_otherwise() -> None:
    founded = [parse(*flags) for flags in ([], ["--replication-factor", "3"], ["--replication-factor", "5"])]
    assert [(config.replication_factor, config.write_quorum) for config in founded] == [(1, 1), (3, 2), (5, 3)]
    config = parse(WALRUS_REPLICATION_FACTOR="3", WALRUS_WRITE_QUORUM="3")
    assert (config.replication_factor, config.write_quorum) == (3, 3)


def test_a_wildcard_is_not_advertised() -> None:
    wildcard = parse("--raft-host", "0.0.0.0", "--secret-file", "secret")
    assert wildcard.advertised(Address("0.0.0.0", 6000)).host != "0.0.0.0"
    assert str(parse().advertised(Address("127.0.0.1", 6000))) == "127.0.0.1:6000"


@pytest.mark.parametrize(
    ("arguments", "reached"),
    [
        (["--bind-host", "0.0.0.0"], "--raft-port on 0.0.0.0, --peer-port on 0.0.0.0, --admin-port on 0.0.0.0, and"),
        (["--raft-host", "orders-0"], "--raft-port on orders-0, --peer-port on orders-0, and"),
        (["--admin-host", "::"], "strangers would reach --admin-port on ::, and"),
    ],
)
def test_without_a_secret_strangers_reach_none_of_the_nodes_listeners(
    arguments: list[str], reached: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It only warned, and whoever reached the ports could become a voter and a replica."""
    with pytest.raises(SystemExit) as stopped:
        parse(*arguments)
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert reached in told
    assert "--secret-file, or bind" in told
    assert parse(*arguments, "--secret-file", "secret").secret_file == Path("secret")


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost"])
def test_on_loopback_no_secret_is_needed(host: str) -> None:
    assert parse("--bind-host", host, "--client-host", "0.0.0.0").raft.host == host


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--raft-port", "70000"], "'70000' is no port"),
        (["--join", "a:1,b"], "'b' is not HOST:PORT"),
        (["--admin-port", "8080"], "are the same"),
        (["--replication-factor", "3", "--write-quorum", "4"], "--write-quorum 4 is above --replication-factor 3"),
        (["--node-name", "a b"], "'a b' is no name"),
        (["--zone", "a b"], "'a b' is no zone"),
        (["--zone", "z" * 64], "is no zone: 1 to 63 characters"),
        (["--node-id", "0"], "'0' is no number from 1"),
        (["--fsync", "often"], "'often' is not each, never or <n>ms"),
        (["--backend", "tape"], "invalid choice: 'tape'"),
        (["--join", "here"], "'here' is not HOST:PORT"),
        (["--segment-bytes-max", "10XB"], "'10XB' is no size"),
        (["--segment-age-max", "soon"], "'soon' is no duration"),
        (["--log-level", "loud"], "'loud' is no log level"),
        (["--segment-entries-max", "-1"], "--segment-entries-max"),
        (["--raft-host", "a b"], "'a b' is no host name"),
        (["--replaces", "orders-0"], "is no UUID of a disk"),
        (["--raft-port", "7000", "--http-port", "7000"], "are the same"),
        (["--data-dri", "/x"], "unrecognized arguments: --data-dri"),
        (["--frame-bytes-max", "999999999"], "is no number from 1 to 16777216"),
        (["--connections-max", "0"], "'0' is no number from 1"),
        (["--header-timeout", "0"], "'0' is too short: at least 1ms"),
        (["--memory-budget", "1MiB"], "'1MiB' is too small: at least 32MiB"),
    ],
)
def test_a_wrong_option_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(*arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("WALRUS_MONITOR_CHECK_MS", "never", "--monitor-check-ms"),
        ("WALRUS_TEST_CONTROLS", "perhaps", "WALRUS_TEST_CONTROLS: 'perhaps' is neither true nor false"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(**{variable: value})
    assert named in capsys.readouterr().err


KAFKA = ClientListener("kafka", "kafka", Address("127.0.0.1", 9092))


@pytest.mark.parametrize("protocol", ["text", "grpc", "kafka"])
def test_each_protocol_has_listeners_with_names(protocol: str) -> None:
    outside = ClientListener(
        *(protocol, "outside", Address("0.0.0.0", 9093), "acme", Address("b.example.org", 31_093)), admin=False
    )
    other = ClientListener(protocol, "other", Address("::1", 0))
    texts = ("outside=0.0.0.0:9093,org=acme,advertise=b.example.org:31093,admin=off", "other=[::1]:0")
    flag = f"--{protocol}-listener"
    assert parse(flag, texts[0], flag, texts[1]).listeners == (KAFKA, outside, other)
    assert parse(**{f"WALRUS_{protocol.upper()}_LISTENER": ";".join(texts)}).listeners == (KAFKA, outside, other)


def test_a_listener_called_as_its_protocol_takes_the_place_of_the_one_that_is_there() -> None:
    assert parse("--kafka-port", "0").listeners[0].bind == Address("127.0.0.1", 0)
    assert parse("--kafka-listener", "kafka=[::1]:1").listeners == (
        ClientListener("kafka", "kafka", Address("::1", 1)),
    )
    config = parse("--text-listener", "text=[::1]:1,admin=off", "--grpc-listener", "grpc=[::1]:2")
    assert (config.text, config.grpc) == (Address("::1", 1), Address("::1", 2))


def test_addresses_of_a_listener_may_come_from_a_file() -> None:
    config = parse("--grpc-listener", "outside=0.0.0.0:1,advertise=file", WALRUS_ADVERTISED_FILE="/told")
    assert config.advertised_file == Path("/told")
    assert [one.is_told_by_file for one in config.listeners] == [False, True]


def test_the_original_at_kafkas_port_keeps_it() -> None:
    assert parse("--client-port", "9092").listeners == ()
    assert parse("--client-port", "9092", "--kafka-port", "9093").listeners[0].bind.port == 9093


@pytest.mark.parametrize("protocol", ["text", "grpc", "kafka"])
@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ("9093", "NAME=HOST:PORT"),
        ("a b=h:1", "NAME=HOST:PORT"),
        ("a=h", "HOST:PORT"),
        ("a=h:1,org=_walrus", "organisation"),
        ("a=h:1,admin=no", "neither on nor off"),
        ("a=h:1,advertise=h:0", "no port from 1"),
        ("a=h:1,advertise=file", "advertise=file needs --advertised-file"),
        ("a=h:1,tls=on", "tls): org, advertise, admin are known"),
        ("a=h:1,org=b,org=c", "an option twice"),
        ("a=h:1;a=h:2", "two listeners"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(
    protocol: str, listener: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(f"--{protocol}-listener", listener)
    assert why in capsys.readouterr().err
