import io
import json
import re
import signal
import subprocess
import sys
import threading

import pytest
from walrus_client import Client, OutRecord
from walrus_client.cli.__main__ import main


@pytest.fixture
def walrus(capsys, monkeypatch, tmp_path):
    """Runs the program in an empty folder: its exit code, what it printed, and what it said beside that."""
    monkeypatch.chdir(tmp_path)
    for name in ("WALRUS_ADDR", "WALRUS_BOOTSTRAP", "WALRUS_DEV_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


def test_an_entry_goes_in_and_out(walrus, text_peer):
    at = ("--addr", text_peer.address)
    assert walrus("register", "t", *at) == (0, "OK\n", "")
    assert walrus("put", "t", "hello world", *at) == (0, "OK\n", "")
    assert walrus("get", "t", *at) == (0, "hello world\n", "")


def test_options_may_stand_before_the_command(walrus, text_peer):
    assert walrus("--addr", text_peer.address, "register", "t") == (0, "OK\n", "")
    assert json.loads(walrus("--output", "json", "--addr", text_peer.address, "put", "t", "x")[1]) == {"ok": True}


def test_the_address_may_be_in_the_environment(walrus, text_peer, monkeypatch):
    monkeypatch.setenv("WALRUS_ADDR", text_peer.address)
    assert walrus("register", "t")[0] == 0


def test_an_empty_topic_has_an_exit_code_of_its_own(walrus, text_peer):
    at = ("--addr", text_peer.address)
    walrus("register", "t", *at)
    assert walrus("get", "t", *at) == (4, "", "walrus: EMPTY\n")
    code, printed, _ = walrus("get", "t", "--output", "json", *at)
    assert (code, json.loads(printed)) == (4, {"empty": True})


def test_an_entry_that_says_empty_is_not_an_empty_topic(walrus, text_peer):
    at = ("--addr", text_peer.address)
    for payload in ("EMPTY", "OK", "ERR no", ""):
        assert walrus("put", "t", payload, *at)[0] == 0
        assert walrus("get", "t", *at) == (0, f"{payload}\n", "")


def test_an_entry_may_come_from_standard_input(walrus, text_peer):
    at = ("--addr", text_peer.address)
    assert walrus("put", "t", *at, stdin="zwei Zeilen\nmit ü".encode())[0] == 0
    assert (
        walrus("get", "t", "--output", "json", *at)[1]
        == json.dumps({"empty": False, "payload": "zwei Zeilen\nmit ü"}, indent=2, ensure_ascii=False) + "\n"
    )


def test_state_and_metrics_are_json(walrus, text_peer):
    at = ("--addr", text_peer.address)
    walrus("register", "t", *at)
    assert json.loads(walrus("state", "t", *at)[1])["current_segment"] == 1
    assert json.loads(walrus("metrics", *at)[1])["current_leader"] == 1


def test_a_refusal_is_one_line_on_standard_error(walrus, text_peer):
    assert walrus("state", "nothing", "--addr", text_peer.address) == (1, "", "walrus: unknown topic nothing\n")


def test_a_node_that_cannot_be_reached_has_an_exit_code_of_its_own(walrus, closed_port):
    code, printed, told = walrus("get", "t", "--addr", f"127.0.0.1:{closed_port}")
    assert (code, printed) == (3, "")
    assert told == f"walrus: no node can be reached: 127.0.0.1:{closed_port}: Connection refused\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("put",),
        ("get", "t", "--addr", "nowhere"),
        ("read", "t", "--bootstrap", "nowhere"),
        ("read", "t", "--output", "xml"),
        ("dev", "kill", "node-1", "--signal", "NONSENSE"),
    ],
)
def test_wrong_usage_has_exit_code_2_and_no_traceback(walrus, arguments):
    code, _, told = walrus(*arguments)
    assert code == 2
    assert told
    assert "Traceback" not in told


def test_what_is_not_utf_8_is_refused_by_the_text_protocol_and_taken_by_append(walrus, text_peer, peer):
    for arguments in (("put", "t"), ("put", "t", "\udcff"), ()):
        code, _, told = walrus("--addr", text_peer.address, *arguments, stdin=b"put t \xff\n")
        assert code == 1
        assert "utf-8" in told.lower()
        assert told.count("\n") == 1
    assert text_peer.topics == {}
    at = ("--bootstrap", peer.address)
    walrus("topics", "create", "t", *at)
    walrus("append", "t", "\udcff", *at)
    assert walrus("read", "t", *at)[1] == "0\t\\xff\n"


def test_a_blank_in_a_topic_does_not_write_to_another_topic(walrus, text_peer):
    # `walrus put "my topic" x` said OK, and `topic x` was an entry of the topic `my`.
    at = ("--addr", text_peer.address)
    walrus("register", "my", *at)
    for arguments in (("put", "my topic", "x"), ("register", "my topic"), ("get", "my topic"), ("state", "my topic")):
        code, printed, told = walrus(*arguments, *at)
        assert (code, printed) == (1, "")
        assert told.startswith("walrus: invalid topic name 'my topic': expected 1 to 249 characters")
    for name in ("", ".", "..", "t\n", "ü", "a" * 250):
        assert walrus("put", name, "x", *at)[0] == 1
    assert text_peer.topics == {"my": []}


def test_an_entry_that_is_no_text_is_printed_byte_for_byte(walrus, text_peer, monkeypatch):
    # It was taken from the cursor, and then not shown: "answered what is not UTF-8".
    text_peer.topics["t"] = [b"\x00\xff\r\n", b"\xff"]
    at = ("--addr", text_peer.address)
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed))
    assert walrus("get", "t", *at)[0] == 0
    assert printed.getvalue() == b"\x00\xff\r\n\n"
    assert walrus("get", "t", "--output", "json", *at)[0] == 0
    assert json.loads(printed.getvalue()[5:]) == {"empty": False, "payload_base64": "/w=="}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "one of the two"),
        (("segment.ms=1", "--partitions", "3"), "one of the two"),
        (("--partitions", "3", "--expect-version", "1"), "only settings have a version"),
    ],
)
def test_a_topic_is_altered_by_settings_or_by_more_partitions(walrus, peer, arguments, problem):
    ended, _, told = walrus("topics", "alter", "t", *arguments, "--bootstrap", peer.address)
    assert ended == 2
    assert problem in told


def test_what_strangers_stored_moves_no_cursor_of_a_terminal(walrus, text_peer, peer, monkeypatch):
    text_peer.topics["t"] = [b"a\x1b[2Jb"]
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", ["a\x1b[2J\u202eb\tc".encode()])
    monkeypatch.setattr("sys.stdout", Terminal())
    walrus("get", "t", "--addr", text_peer.address)
    walrus("read", "t", "--bootstrap", peer.address)
    assert sys.stdout.getvalue() == "a\\x1b[2Jb\n0\ta\\x1b[2J\\u202eb\tc\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("ERR unavailable: no leader; try again", 3),
        ("ERR timed out after 30000 ms: an append; try again", 3),
        ("ERR NotLeaderForPartition: t/0", 3),
        ("ERR no space left on node 1; free space or trim", 3),
        ("ERR outcome unknown: an append; it may have been done", 5),
        ("ERR unknown topic t", 1),
        ("ERR words of a later release", 1),
    ],
)
def test_an_error_has_the_same_exit_code_whatever_the_protocol(walrus, text_peer, monkeypatch, answer, code):
    # Over the text protocol everything that a node said ended with 1, also what passes by itself.
    monkeypatch.setattr(text_peer, "answer", lambda _: answer.encode())
    ended, printed, told = walrus("put", "t", "x", "--addr", text_peer.address)
    assert (ended, printed, told) == (code, "", f"walrus: {answer.removeprefix('ERR ')}\n")


def test_an_append_whose_connection_breaks_is_said_to_be_unknown(walrus, text_peer):
    text_peer.break_at.add("PUT t x")
    code, _, told = walrus("put", "t", "x", "--addr", text_peer.address)
    assert code == 5
    assert "may be stored or not" in told


def test_a_folder_that_cannot_be_made_is_one_line_on_standard_error(walrus):
    code, _, told = walrus("dev", "up", "--dir", "/dev/null/cluster")
    assert code == 1
    assert told.count("\n") == 1
    assert "/dev/null/cluster" in told


def test_without_a_command_lines_are_commands(walrus, text_peer):
    lines = b"register t\nput t  two blanks\n\nGET t\nget t\nnonsense\nhelp\nexit\nput t never\n"
    code, printed, told = walrus("--addr", text_peer.address, stdin=lines)
    assert (code, told) == (0, "")
    assert printed.splitlines()[:5] == ["OK", "OK", "OK  two blanks", "EMPTY", "ERR unknown command"]
    assert "REGISTER topic" in printed
    assert text_peer.topics == {"t": [b" two blanks"]}


def test_the_prompt_connects_again_after_a_lost_connection(walrus, text_peer):
    text_peer.break_at.add("PUT t break")
    code, printed, told = walrus("--addr", text_peer.address, stdin=b"register t\nput t break\nput t go on\n")
    assert (code, printed) == (0, "OK\nOK\n")
    assert "connecting again" in told


def test_topics_are_created_and_listed(walrus, peer):
    at = ("--bootstrap", peer.address)
    assert walrus("topics", "create", "t", "--partitions", "3", *at) == (0, "t: 3 partitions\n", "")
    assert json.loads(walrus("topics", "--output", "json", *at)[1]) == [
        {"name": "t", "uuid": "uuid-t", "partitions": 3, "internal": False}
    ]
    assert re.search(r"t +3 +uuid-t", walrus("topics", *at)[1])


def test_lines_are_appended_and_read_back(walrus, peer):
    at = ("--bootstrap", peer.address)
    walrus("topics", "create", "t", *at)
    assert walrus("append", "t", "a", "b", *at) == (0, "2 records appended to t\n", "")
    assert walrus("append", "t", "--key", "k", *at, stdin=b"c\nd\n\xff")[1] == "3 records appended to t\n"
    code, printed, _ = walrus("read", "t", *at)
    assert (code, printed) == (0, "0\ta\n1\tb\n2\tk\tc\n3\tk\td\n4\tk\t\\xff\n")
    assert walrus("read", "t", "--offset", "-2", "-n", "1", *at)[1] == "3\tk\td\n"
    lines = walrus("read", "t", "-s", "2", "--output", "json", *at)[1].splitlines()
    assert [json.loads(line).get("value") for line in lines] == ["c", "d", None]
    assert json.loads(lines[2])["value_base64"] == "/w=="


def test_lines_with_keys_go_in_and_the_records_of_all_partitions_come_out(walrus, peer, tmp_path):
    at = ("--bootstrap", peer.address)
    walrus("topics", "create", "t", "--partitions", "2", *at)
    (tmp_path / "lines").write_bytes(b"a,1\nb,2\na,3,3\n")
    code, printed, told = walrus("produce", "t", "--file", "lines", "--key-separator", ",", *at)
    assert (code, told) == (0, "")
    assert re.fullmatch(r"3 records, 8 B in \d+\.\d s appended to t\n", printed)
    assert walrus("produce", "t", "-p", "1", *at, stdin=b"\xff\nlast")[1].startswith("2 records, 5 B in ")
    counted = json.loads(walrus("produce", "t", "-o", "json", *at, stdin=b"")[1])
    assert (counted["records"], counted["bytes"], counted["stopped"]) == (0, 0, False)

    records = [json.loads(line) for line in walrus("consume", "t", "--output", "json", *at)[1].splitlines()]
    assert all(set(record) >= {"partition", "offset", "timestamp_ms", "key", "headers"} for record in records)
    pairs = sorted((r["key"] or "", r.get("value", r.get("value_base64"))) for r in records)
    assert pairs == [("", "/w=="), ("", "last"), ("a", "1"), ("a", "3,3"), ("b", "2")]
    for partition in (0, 1):
        offsets = [r["offset"] for r in records if r["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    one = walrus("consume", "t", "-p", "1", "--from", "-1", *at)[1]
    assert re.fullmatch(r"1\t\d+\t[^\t]+\t\tlast\n", one)
    assert walrus("consume", "t", "-n", "2", *at)[1].count("\n") == 2


def test_a_consumer_begins_at_a_time_and_shows_headers(walrus, peer):
    at = ("--bootstrap", peer.address)
    with Client(peer.address) as client:
        client.create_topic("t")
        for hour in range(3):
            time = 1_764_230_400_000 + hour * 3_600_000
            client.append(
                "t", [OutRecord(b"v%d" % hour, key=b"k", timestamp_ms=time, headers=[("h", b"x"), ("n", None)])]
            )
    code, printed, _ = walrus("consume", "t", "--from", "2025-11-27T09:30Z", *at)
    assert (code, printed) == (0, "0\t2\t2025-11-27T10:00:00.000Z\tk\tv2\th=x,n=(none)\n")
    assert walrus("consume", "t", "--from", "latest", *at)[:2] == (0, "")
    assert walrus("consume", "t", "--from", "1m", *at)[:2] == (0, "")
    assert walrus("consume", "t", "--from", "1", *at)[1].count("\n") == 2


def test_a_consumer_that_follows_gets_what_comes_in_every_partition(walrus, peer):
    at = ("--bootstrap", peer.address)
    partitions = 40  # more than there are threads that read
    with Client(peer.address) as client:
        client.create_topic("t", partitions=partitions)

        def append_to_all():
            for partition in range(partitions):
                client.append("t", [b"%d" % partition], partition=partition)

        appending = threading.Thread(target=append_to_all)
        appending.start()
        code, printed, _ = walrus("consume", "t", "--follow", "-n", str(partitions), "--output", "json", *at)
        appending.join()
    assert code == 0
    assert sorted(json.loads(line)["partition"] for line in printed.splitlines()) == list(range(partitions))


@pytest.fixture
def heeds_ctrl_c():
    """What is started heeds SIGINT. A job that a shell runs in the background ignores it, with all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_a_consumer_and_a_closed_pipe_does_without_a_word(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", [b"x" * 1000] * 1000)
    command = [sys.executable, "-m", "walrus_client.cli", "consume", "t", "--follow", "--bootstrap", peer.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        for _ in range(1000):
            assert following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.communicate(timeout=30) == (b"", b"stopped\n")
        assert following.returncode == 0
    with subprocess.Popen(command[:-3] + command[-2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
        assert reading.wait(timeout=30) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("consume", "t", "--from", "soon"), "neither earliest, latest"),
        (("consume", "t", "--from", "7"), "partition 0 of t ends at 0: there is no offset 7 yet"),
        (("consume", "t", "-p", "5"), "topic t has 1 partition, there is no 5"),
        (("consume", "no"), "unknown topic no"),
        (("produce", "t", "--file", "missing"), "No such file or directory: 'missing'"),
        (("produce", "t", "--key-separator", ""), "at least one character"),
        (("produce", "t", "--key-separator", "="), "line 2 has no key: there is no '=' in it"),
    ],
)
def test_what_cannot_be_produced_or_consumed_is_said_clearly(walrus, peer, arguments, words):
    with Client(peer.address) as client:
        client.create_topic("t")
    code, printed, told = walrus(*arguments, "--bootstrap", peer.address, stdin=b"k=v\nno key\n")
    assert code in (1, 2)
    assert printed == ""
    assert words in re.sub(r"[\s│]+", " ", told)


def test_segments_show_offsets_and_leaders(walrus, peer):
    at = ("--bootstrap", peer.address)
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", [b"x", b"y"])
    assert re.search(r"0 +0 +open +1 +\[0, 2\) +1 +1 2 \(down\) +1\.5 KiB", walrus("segments", "t", *at)[1])
    (partition,) = json.loads(walrus("segments", "t", "--output", "json", *at)[1])
    assert partition["segments"][0]["state"] == "open"
    assert partition["segments"][0]["leader"]["grpc_address"] == peer.address


def test_an_unknown_topic_is_one_line_on_standard_error(walrus, peer):
    for command in (("segments", "no"), ("read", "no"), ("append", "no", "x")):
        code, _, told = walrus(*command, "--bootstrap", peer.address)
        assert code == 1
        assert told.count("\n") == 1
        assert "no" in told


def test_the_help_shows_exit_codes_and_every_command_an_example(walrus):
    assert "4 there is nothing" in walrus("--help")[1].replace("\n", " ")
    for command in (
        "register",
        "put",
        "get",
        "state",
        "metrics",
        "topics",
        "segments",
        "append",
        "read",
        "produce",
        "consume",
    ):
        code, printed, _ = walrus(command, "--help")
        assert code == 0
        assert "Example" in printed
    for command in ("up", "down", "status", "kill", "restart", "logs"):
        assert "Example" in walrus("dev", command, "--help")[1]


def test_the_version_is_printed(walrus):
    assert re.fullmatch(r"walrus \d+\.\d+\.\d+\n", walrus("--version")[1])


def test_another_package_adds_a_command(walrus, monkeypatch):
    def archive(topic: str) -> None:
        """Archive a topic."""
        print(f"archived {topic}")

    offer_commands(monkeypatch, archive=lambda: archive)
    assert walrus("archive", "t") == (0, "archived t\n", "")


def test_a_broken_package_does_not_keep_other_commands_from_working(walrus, monkeypatch, text_peer):
    def broken():
        raise ImportError("no module named pyspark")

    offer_commands(monkeypatch, archive=broken)
    assert walrus("register", "t", "--addr", text_peer.address)[0] == 0
    code, _, told = walrus("archive")
    assert code == 1
    assert "no module named pyspark" in told


class Terminal(io.StringIO):
    def isatty(self):
        return True


def offer_commands(monkeypatch, **loaders):
    class Offered:
        def __init__(self, name, load):
            self.name, self.load, self.value = name, load, f"package:{name}"

    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda **_: [Offered(name, load) for name, load in loaders.items()]
    )
