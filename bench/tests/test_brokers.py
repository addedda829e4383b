"""What is left of the brokers of a run that failed."""

from walrus_bench.suites import brokers


def test_the_last_complaints_of_a_broker_are_told_with_the_failure_of_a_run(tmp_path):
    """A run of half an hour failed with a number of Kafka's protocol; the log that had the reason was removed."""
    log = tmp_path / "node.log"
    lines = ["t INFO a: fine", "t WARN b: slow", "t ERROR c: the disk failed", "t WARNING d: late"]
    log.write_text("\n".join(lines))
    told = brokers.complaints("node-1", log)
    assert told.splitlines() == [f"node-1 in {log} complained:", *lines[1:]]
    assert brokers.complaints("node-1", tmp_path / "none").endswith("of nothing")
