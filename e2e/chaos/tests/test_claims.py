"""Claims of nodes: each kind of false one is found, and a run in which nobody claimed anything shows nothing."""

from chaos.claims import Claims, check_end, check_names, check_page


def asked() -> Claims:
    claims = Claims()
    check_end(claims, "t/0", known=3, end=3)
    check_page(claims, "t/0", known=3, refusal="")
    check_names(claims, "TOPICS", "topics", {"a", "b"}, '["a","b"]')
    check_names(claims, "STATE a", "state", {"current_segment"}, '{"current_segment": 0}')
    return claims


def test_true_claims_hold() -> None:
    assert asked()


def test_claims_that_were_never_made_do_not_hold() -> None:
    assert not Claims()
    for kind in ("end", "page", "topics", "state"):
        claims = asked()
        del claims.final[kind]
        assert not claims, kind


def test_each_false_claim_is_told() -> None:
    for tell in (
        lambda claims: check_end(claims, "t/0", known=3, end=2),
        lambda claims: check_page(claims, "t/0", known=3, refusal="out of range"),
        lambda claims: check_names(claims, "TOPICS", "topics", {"a", "b"}, '["a"]'),
        lambda claims: check_names(claims, "STATE a", "state", {"current_segment"}, "ERR unknown topic a"),
    ):
        claims = asked()
        tell(claims)
        assert len(claims.false) == 1
        assert not claims
