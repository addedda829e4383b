"""Claims that a cursor is at its end: a false one is found, and what a lost connection may hold makes none false."""

from chaos.emptiness import HELD_MAX, MAY_HOLD_S, EmptyClaims


def test_a_claim_after_all_was_handed_out_is_right() -> None:
    claims = EmptyClaims()
    claims.check("node", known=0, handed=set(), now_s=0.0)
    claims.check("node", known=3, handed={0, 1, 2, 3}, now_s=1.0)
    assert claims
    assert str(claims) == "2 times EMPTY; nothing wrong"


def test_claims_that_were_never_made_do_not_hold() -> None:
    assert not EmptyClaims()


def test_a_claim_before_all_that_was_acknowledged_was_handed_out_is_found() -> None:
    claims = EmptyClaims()
    claims.check("node", known=4, handed={0, 1, 3}, now_s=0.0)
    assert not claims
    assert claims.false == ["node: 4 records were acknowledged, 1 not given: [2]"]


def test_what_was_not_acknowledged_before_the_question_may_be_missing() -> None:
    claims = EmptyClaims()
    claims.check("node", known=2, handed={0, 1}, now_s=0.0)
    claims.check("node", known=2, handed={0, 1, 3}, now_s=1.0)
    assert claims


def test_a_connection_that_ended_may_hold_what_its_answer_lost_for_a_while_and_no_more() -> None:
    for missing, later_s, is_right in ((HELD_MAX, 0.0, True), (HELD_MAX + 1, 0.0, False), (1, MAY_HOLD_S + 1, False)):
        claims = EmptyClaims()
        claims.check("node", known=0, handed=set(), now_s=0.0)
        claims.has_ended(0.0)
        claims.check("node", known=10, handed=set(range(10 - missing)), now_s=later_s)
        assert bool(claims) is is_right, (missing, later_s)
        assert claims.doubtful == is_right


def test_claims_that_a_lost_connection_excuses_show_nothing_alone() -> None:
    claims = EmptyClaims()
    claims.has_ended(0.0)
    claims.check("node", known=1, handed=set(), now_s=0.0)
    assert not claims.false
    assert not claims


def test_a_record_that_comes_after_all_is_missing_no_more() -> None:
    claims = EmptyClaims()
    claims.has_ended(0.0)
    claims.check("node", known=3, handed={0, 2}, now_s=0.0)
    claims.check("node", known=3, handed={0, 1, 2}, now_s=MAY_HOLD_S + 1)
    assert claims
    assert "1 of them with records that a lost connection may have held" in str(claims)
