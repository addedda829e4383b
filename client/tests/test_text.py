import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walrus_client import CorruptionError, Unavailable, WrongPort
from walrus_client.text import FRAME_BYTES_MAX, TextClient, encode_frame


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_a_frame_is_its_length_in_bytes_and_its_text(text):
    frame = encode_frame(text)
    (length,) = struct.unpack("<I", frame[:4])
    assert length == len(frame) - 4 == len(text.encode())
    assert frame[4:].decode() == text


def test_requests_and_answers_are_kept_to_the_byte(text_peer):
    with TextClient(text_peer.address) as client:
        assert client.request("REGISTER t") == "OK"
        for payload in ("hello world", " blanks around  ", "zwei\nlines", "ü€😀", "x" * 60_000):
            assert client.request(f"PUT t {payload}") == "OK"
            assert client.request("GET t") == f"OK {payload}"
        assert client.request("GET t") == "EMPTY"
        assert client.request("NONSENSE") == "ERR unknown command"


def test_the_first_node_that_can_be_reached_is_used(text_peer, closed_port):
    with TextClient(f"127.0.0.1:{closed_port},{text_peer.address}") as client:
        assert client.address == text_peer.address
        assert client.request("REGISTER t") == "OK"


def test_without_a_node_the_error_names_every_address(closed_port):
    with pytest.raises(Unavailable, match=f"127.0.0.1:{closed_port}: Connection refused"):
        TextClient(f"127.0.0.1:{closed_port}")


@pytest.mark.parametrize(
    ("sent", "error", "told"),
    [
        (b"", Unavailable, "closed the connection"),
        (b"\x05\x00\x00\x00ab", Unavailable, "closed the connection"),
        (struct.pack("<I", FRAME_BYTES_MAX + 1), WrongPort, "no Walrus text port: its answer begins with"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", WrongPort, "no Walrus text port: it answers in HTTP"),
        (b"\0\0\x18\4\0\0\0\0\0", WrongPort, "no Walrus text port: it answers in gRPC"),
        (b"\x02\x00\x00\x00\xff\xfe", CorruptionError, "not UTF-8"),
    ],
)
def test_answers_that_are_cut_off_or_no_frames_are_errors(sent, error, told):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        with TextClient(f"127.0.0.1:{server.getsockname()[1]}") as client, pytest.raises(error, match=told):
            client.request("METRICS")
        thread.join()
