"""What is kept from run to run: a page that is put together from parts must not say what nobody tried."""

from pathlib import Path

from walrus_compat.feature import Wrong
from walrus_compat.results import Outcome, Results

TOLD = Wrong("the reader was told: EOF", "EOF")
AS_KAFKA = Outcome((TOLD,), (TOLD,))


def test_what_was_tried_in_parts_is_kept_as_it_came(tmp_path: Path) -> None:
    path = tmp_path / "compat.json"
    assert Results.load(path) == Results()
    first = Results({"sarama": "1"}, {("sarama", "codecs"): Outcome()}, {"Spark": Outcome((Wrong("it ended"),))})
    first.save(path)
    so_far = Results.load(path)
    assert so_far == first
    so_far.add(Results({"sarama": "1"}, {("sarama", "resets"): AS_KAFKA, ("sarama", "admin"): Outcome((TOLD,))}))
    so_far.save(path)
    kept = Results.load(path)
    assert kept.features == {
        ("sarama", "codecs"): Outcome(),
        ("sarama", "resets"): AS_KAFKA,
        ("sarama", "admin"): Outcome((TOLD,)),
    }
    assert kept.missing(["sarama"], ["codecs", "resets", "admin"], ["Spark", "Connect"]) == [
        "admin with sarama",
        "Connect",
    ]


def test_nothing_is_kept_of_a_client_whose_version_is_another_one_now() -> None:
    results = Results({"sarama": "1", "kcat": "1"}, {("sarama", "codecs"): Outcome(), ("kcat", "codecs"): Outcome()})
    results.add(Results({"sarama": "2"}, {("sarama", "sizes"): Outcome()}))
    assert results.versions == {"sarama": "2", "kcat": "1"}
    assert set(results.features) == {("kcat", "codecs"), ("sarama", "sizes")}
