"""What the client makes of encoded answers."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from walrus_client.model import BatchPage
from walrus_client.v1 import log_pb2

numbers = st.integers(0, 2**64 - 1)
answers = st.builds(
    log_pb2.ReadResponse,
    batches=st.binary(max_size=300),
    next_offset=numbers,
    high_watermark=numbers,
    log_start=numbers,
)


def as_protobuf_has_it(encoded):
    answer = log_pb2.ReadResponse.FromString(encoded)
    return BatchPage(memoryview(answer.batches), answer.next_offset, answer.high_watermark, answer.log_start)


@given(answers)
def test_a_page_of_batches_is_what_protobuf_makes_of_the_answer_and_copies_nothing(answer):
    encoded = answer.SerializeToString()
    page = BatchPage.parse(encoded)
    assert page == as_protobuf_has_it(encoded)
    assert page.batches.obj is encoded


@given(
    st.one_of(st.binary(), st.builds(lambda answer, cut: answer.SerializeToString()[cut:], answers, st.integers(-9, 9)))
)
def test_any_bytes_are_the_page_that_protobuf_makes_of_them_or_are_refused(encoded):
    try:
        expected = as_protobuf_has_it(encoded)
    except DecodeError:
        with pytest.raises(DecodeError):
            BatchPage.parse(encoded)
    else:
        assert BatchPage.parse(encoded) == expected


@given(answers, answers)
def test_fields_may_come_in_any_order_and_more_than_once(first, second):
    for encoded in (first.SerializeToString() + second.SerializeToString(), b"\x18\x07" + first.SerializeToString()):
        assert BatchPage.parse(encoded) == as_protobuf_has_it(encoded)
