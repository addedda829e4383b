"""Nothing that arrives on the Raft port is unpickled, and nothing is buffered before its length is allowed."""

import contextlib
import json
import pickle
import struct
import zlib
from uuid import uuid4

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walrus_node.metadata.admission import parse_join
from walrus_node.metadata.wire import (
    WIRE,
    BadFrameError,
    FrameReader,
    Versions,
    decode_greeting,
    decode_message,
    encode_frame,
    encode_greeting,
    encode_message,
)

APPEND = {
    "type": "append",
    "term": 3,
    "commit": 1,
    "previous_index": 4,
    "previous_term": 2,
    "entries": [[b"\x00a", 5, 3]],
}


class Attack:
    ran = False

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, (f"import {__name__} as module; module.Attack.ran = True",))


def one(frame: bytes) -> bytes:
    (payload,) = FrameReader(10_000).feed(frame)
    return payload


def test_a_message_comes_back() -> None:
    assert decode_message(one(encode_message(APPEND))) == APPEND


def test_a_greeting_comes_back() -> None:
    assert decode_greeting(one(encode_greeting({"hello": 1}))) == {"hello": 1}


def test_frames_are_cut_wherever_the_stream_breaks() -> None:
    stream = encode_frame(b"one") + encode_frame(b"") + encode_frame(b"three")
    reader = FrameReader(100)
    got = [payload for byte in stream for payload in reader.feed(bytes([byte]))]
    assert got == [b"one", b"", b"three"]


def test_a_pickle_is_refused_and_does_not_run() -> None:
    """PySyncObj as shipped ran this code in the member, from one frame, before any greeting."""
    attack = pickle.dumps(Attack())
    for payload in (attack, zlib.compress(attack)):
        with pytest.raises(BadFrameError):
            decode_greeting(one(encode_frame(payload)))
        with pytest.raises(BadFrameError):
            decode_message(one(encode_frame(payload)))
    assert not Attack.ran


def test_a_length_above_the_limit_is_refused_before_anything_of_it_is_held() -> None:
    with pytest.raises(BadFrameError, match="2147483647 bytes"):
        list(FrameReader(16_384).feed(struct.pack("<II", 2**31 - 1, 0)))


def test_a_damaged_frame_is_refused() -> None:
    frame = bytearray(encode_frame(b"payload"))
    frame[-1] ^= 1
    with pytest.raises(BadFrameError, match="checksum"):
        list(FrameReader(100).feed(bytes(frame)))


@pytest.mark.parametrize(
    "wrong",
    [
        {**APPEND, "term": -1},
        {**APPEND, "term": 2**63},
        {**APPEND, "term": True},
        {**APPEND, "term": "3"},
        {**APPEND, "entries": [[b"", 5, 3]]},
        {**APPEND, "entries": [[b"\x00a", 5]]},
        {**APPEND, "entries": [["text", 5, 3]]},
        {**APPEND, "more": 1},
        {"type": "append"},
        {"type": "timeout_now", "term": 1},
        {"type": ["append"]},
        {"type": {}},
        [APPEND],
        3,
    ],
)
def test_a_message_of_the_wrong_shape_is_refused(wrong: object) -> None:
    with pytest.raises(BadFrameError):
        decode_message(msgpack.packb(wrong))


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(payload: bytes) -> None:
    for decode in (decode_message, decode_greeting):
        with contextlib.suppress(BadFrameError):
            decode(payload)


def join_request(**changes: object) -> dict[str, object]:
    names = ("raft", "peer", "text", "grpc", "http", "admin")
    request: dict[str, object] = {f"{name}_address": "127.0.0.1:1" for name in names}
    request |= {"disk": str(uuid4()), "process": str(uuid4()), "wanted": None, **changes}
    return json.loads(json.dumps({**WIRE.told("join"), "registration": request}))


def test_a_join_request_is_read() -> None:
    assert parse_join(join_request(wanted=3)).wanted == 3
    assert parse_join(join_request(name="orders-1")).name == "orders-1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"disk": "x"},
        {"disk": None},
        {"process": 7},
        {"wanted": 0},
        {"wanted": True},
        {"wanted": 2**31},
        {"name": 7},
        {"name": "n" * 301},
        {"admin_address": ""},
        {"raft_address": ""},
        {"http_address": "x" * 1_000},
        {"grpc_address": None},
    ],
)
def test_a_join_request_of_the_wrong_shape_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        parse_join(join_request(**wrong))


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((1, 2), (1, 2), 2),
        ((2, 3), (1, 2), 2),
        ((2, 3), (1, 1), None),
        ((1, 1), (2, 3), None),
    ],
)
def test_two_nodes_speak_the_newest_version_that_both_know(
    ours: tuple[int, int], theirs: tuple[int, int], agreed: int | None
) -> None:
    assert Versions(*ours).negotiate(Versions(*theirs)) == agreed
    assert Versions.parse(Versions(*theirs).told("hello"), "hello") == Versions(*theirs)


@pytest.mark.parametrize("wrong", [{}, {"hello": "1"}, {"hello": 1, "oldest": 2}, {"hello": True}])
def test_a_greeting_of_no_version_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadFrameError, match="some wire version"):
        Versions.parse(wrong, "hello")


def test_a_join_request_of_other_versions_is_told_which_there_are() -> None:
    request = join_request() | Versions(WIRE.newest + 1, WIRE.newest + 2).told("join")
    with pytest.raises(BadFrameError, match=r"it speaks wire versions 2 to 3, this node 1 to 1: upgrade"):
        parse_join(request)
