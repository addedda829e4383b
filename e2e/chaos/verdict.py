"""What the log holds in the end, compared with what was acknowledged and with what was seen on the way. Pure, O(n)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records import Findings, check_partition

SHOWN = 5


@dataclass(frozen=True)
class Verdict:
    """One partition: what it holds, what is wrong with that, and offsets that were seen otherwise."""

    held: tuple[int, ...]  # hash of each value, by offset
    findings: Findings
    unlike: tuple[int, ...]

    def __bool__(self) -> bool:
        """Whether every promise held."""
        return not self.findings and not self.unlike

    def __str__(self) -> str:
        parts = {name: found for name, found in vars(self.findings).items() if found} | (
            {"seen otherwise": self.unlike} if self.unlike else {}
        )
        wrong = [f"{len(found)} {name}: {list(found)[:SHOWN]}" for name, found in parts.items()]
        return f"{len(self.held)} records; " + ("; ".join(wrong) or "nothing wrong")


def judge(records: Iterable[tuple[int, bytes | None]], *, acked: Mapping[int, int], seen: Sequence[int]) -> Verdict:
    """Judges a partition by all its (offset, value) pairs.

    *acked* has the acknowledged records of each producer that writes to it, *seen* the hash of every value that a
    reader was given, by offset. (A CRC-32 would not do: values end with their own, so all have the same.)
    """
    held: list[int] = []

    def passing() -> Iterable[tuple[int, bytes | None]]:
        for offset, value in records:
            held.append(hash(value))
            yield offset, value

    findings = check_partition(passing(), acked=acked)
    unlike = tuple(offset for offset, shown in enumerate(seen) if offset >= len(held) or held[offset] != shown)
    return Verdict(tuple(held), findings, unlike)
