"""A scenario that is about records that go fails where none did."""

from chaos.vanishing import Went


def test_something_of_each_kind_must_have_gone() -> None:
    assert Went(1, 1, 1)
    assert Went(1, 1, None)
    for went in (Went(0, 1, 1), Went(1, 0, 1), Went(1, 1, 0)):
        assert not went
    assert str(Went(3, 4, None)) == "3 records too old, 4 stood for, 0 topics deleted"
