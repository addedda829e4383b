"""What a group was given and has committed: each violation is seen, and what is no violation is none."""

from chaos.group_verdict import GroupVerdict

PLACE = ("chaos-sticky", 0)


def group() -> GroupVerdict:
    """A group that was given five records, of which three are committed."""
    verdict = GroupVerdict("g")
    for offset in range(5):
        verdict.give(PLACE, offset, 100 + offset, before=offset - 1 if offset else None, at_least=0)
    verdict.commit(PLACE, 3)
    return verdict


def test_records_behind_the_last_commit_may_come_again() -> None:
    verdict = group()
    verdict.give(PLACE, 3, 103, before=None, at_least=3)
    verdict.give(PLACE, 4, 104, before=3, at_least=3)
    verdict.tell(PLACE, 3, at_least=3)
    verdict.check_whole({PLACE: 5})
    verdict.compare(PLACE, [100, 101, 102, 103, 104])
    assert verdict


def test_a_member_that_begins_below_what_was_committed_is_seen() -> None:
    verdict = group()
    verdict.give(PLACE, 2, 102, before=None, at_least=3)
    assert "a member begins at 2" in str(verdict)


def test_an_offset_that_is_told_lower_than_it_was_committed_is_seen() -> None:
    verdict = group()
    verdict.tell(PLACE, 0, at_least=3)
    assert not verdict


def test_what_somebody_was_told_is_not_told_lower_later() -> None:
    verdict = group()
    verdict.tell(PLACE, 5, at_least=3)
    verdict.tell(PLACE, 4, at_least=verdict.committed[PLACE])
    assert not verdict


def test_a_gap_and_a_step_back_are_seen() -> None:
    for offset in (6, 4):
        verdict = group()
        verdict.give(PLACE, offset, 100 + offset, before=4, at_least=0)
        assert f"{offset} was given behind 4" in str(verdict)


def test_another_record_at_an_offset_is_seen() -> None:
    verdict = group()
    verdict.give(PLACE, 3, 7, before=None, at_least=0)
    assert not verdict
    verdict = group()
    verdict.compare(PLACE, [100, 101, 7, 103, 104])
    assert not verdict


def test_a_record_that_nobody_was_given_is_seen() -> None:
    verdict = group()
    assert verdict.has_all({PLACE: 5})
    assert not verdict.has_all({PLACE: 6})
    verdict.check_whole({PLACE: 6})
    assert "1 of 6 records were never given: [5]" in str(verdict)


def test_a_group_that_never_committed_proves_nothing() -> None:
    assert not GroupVerdict("g")
