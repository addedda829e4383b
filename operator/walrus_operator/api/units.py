"""Quantities and durations as numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_FACTORS = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024 ** (power + 1)) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@lru_cache(maxsize=1024, typed=True)
def amount_of(quantity: str | int) -> Fraction | None:
    """The number a Kubernetes quantity stands for; None where it is no quantity."""
    match = re.fullmatch(r"(\d{1,20}(?:\.\d{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", str(quantity))
    return Fraction(match[1]) * _FACTORS[match[2] or ""] if match else None


def quantity_of(amount: Fraction) -> str:
    """Whole bytes as a quantity, in the largest unit that says it exactly."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if amount % _FACTORS[suffix] == 0:
            return f"{amount // _FACTORS[suffix]}{suffix}"
    return str(-(-amount // 1))


def bytes_of(quantity: str) -> int:
    """Bytes of a quantity that the models have checked."""
    amount = amount_of(quantity)
    assert amount is not None
    return int(amount)


def milliseconds_of(duration: str) -> int:
    """Milliseconds of a duration that the models have checked."""
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in re.findall(r"(\d+)(ms|s|m|h|d)", duration))
