"""What clients are told of listeners whose addresses are in a file."""

from pathlib import Path

import pytest
from walrus_node.advertised import AdvertisedAddresses
from walrus_node.metadata.reports import Listener

INSIDE = Listener("kafka", "default", "a.svc:9092", "kafka")
OUTSIDE = Listener("kafka", "default", "", "outside")
PUBLIC = Listener("grpc", "acme", "", "public")


def test_without_a_file_the_listeners_are_as_they_were_opened() -> None:
    assert AdvertisedAddresses((INSIDE,), (), None).now() == (INSIDE,)


def test_a_listener_is_told_of_once_the_file_names_it_and_follows_the_file(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    told = AdvertisedAddresses((INSIDE,), (OUTSIDE, PUBLIC), file)
    assert told.now() == (INSIDE,)
    file.write_text("kafka/outside=192.0.2.7:31092\n")
    outside = Listener("kafka", "default", "192.0.2.7:31092", "outside")
    assert told.now() == (INSIDE, outside)
    file.write_text("kafka/outside=[2001:db8::1]:31092\ngrpc/public=b.example.org:9090\ntext/of-nobody=h:1\n")
    assert told.now() == (
        INSIDE,
        Listener("kafka", "default", "[2001:db8::1]:31092", "outside"),
        Listener("grpc", "acme", "b.example.org:9090", "public"),
    )
    file.unlink()
    assert told.now() == (INSIDE,)


@pytest.mark.parametrize(
    "content",
    [b"kafka/outside", b"kafka/outside=nowhere", b"kafka/outside=h:0", b"\xff\xfe", b"a=h:1\n" * 20_000],
)
def test_a_file_that_cannot_be_understood_changes_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "addresses"
    told = AdvertisedAddresses((), (OUTSIDE,), file)
    file.write_bytes(b"kafka/outside=192.0.2.7:31092")
    known = told.now()
    file.write_bytes(content)
    assert told.now() == known != ()
