"""How long nothing was acknowledged."""

from walrus_bench.suites.failures import _Appended


def test_only_a_record_that_was_sent_after_the_failure_ends_the_gap():
    appended = _Appended()
    appended.note(sent=9.0, acknowledged=11.0)
    appended.note(sent=11.5, acknowledged=12.0)
    assert appended.wait_for_one_sent_after(10.0) == 12.0
