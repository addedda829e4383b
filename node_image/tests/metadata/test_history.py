"""The judge of histories: it lets pass what one order explains, and nothing else."""

import itertools
import math
import random

import pytest
from history import Read, Write, check


def write(name: str, start: float, end: float, place: int | None) -> Write:
    return Write(name, start, end, place)


def read(start: float, end: float, *seen: str) -> Read:
    return Read(start, end, seen)


FINE = [
    [],
    [write("a", 0, 1, 1), read(2, 3, "a")],
    [write("a", 0, 9, 1), read(1, 2), read(3, 4, "a"), read(5, 6, "a")],
    [write("a", 0, 5, 2), write("b", 1, 4, 1), read(6, 7, "b", "a")],
    [write("a", 0, math.inf, None), write("b", 1, 2, 1), read(3, 4, "b"), read(5, 6, "b", "a")],
    [write("a", 0, math.inf, None), read(3, 4)],
]
WRONG = [
    ([write("a", 0, 1, 1), read(2, 3)], "began after"),
    ([write("a", 0, 9, 1), read(1, 2, "a"), read(3, 4)], "began after"),
    ([write("a", 0, 1, 2), write("b", 2, 3, 1), read(4, 5, "b", "a")], "began after"),
    ([write("a", 0, 1, 1), write("b", 0, 1, 1)], "one place"),
    ([write("a", 0, 9, 1), write("b", 0, 9, None), read(0, 9, "b")], "one place"),
    ([write("a", 0, 9, None), write("b", 0, 9, None), read(0, 9, "a"), read(0, 9, "b")], "different orders"),
    ([write("a", 0, 9, None), read(0, 9, "a", "a")], "twice"),
    ([write("a", 0, 9, 2), read(0, 9, "a")], "was told place 2"),
    ([read(0, 9, "a")], "never written"),
    ([write("a", 5, 6, 1), read(1, 2, "a")], "began after"),
]


@pytest.mark.parametrize("history", FINE)
def test_what_one_order_explains_is_linearizable(history: list[Write | Read]) -> None:
    assert check(history) is None


@pytest.mark.parametrize(("history", "why"), WRONG)
def test_what_no_order_explains_is_not(history: list[Write | Read], why: str) -> None:
    assert why in (check(history) or "")


def linearizable(history: list[Write | Read]) -> bool:
    """By trying every order of every subset of the unknown writes."""
    known = [operation for operation in history if isinstance(operation, Read) or operation.place is not None]
    unknown = [operation for operation in history if operation not in known]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                if in_time(order) and explains(order):
                    return True
    return False


def in_time(order: tuple[Write | Read, ...]) -> bool:
    return all(first.start <= second.end for first, second in itertools.combinations(order, 2))


def explains(order: tuple[Write | Read, ...]) -> bool:
    ledger: tuple[str, ...] = ()
    for operation in order:
        if isinstance(operation, Read):
            if operation.seen != ledger:
                return False
        else:
            ledger += (operation.name,)
            if operation.place not in (None, len(ledger)):
                return False
    return True


def test_it_agrees_with_trying_every_order() -> None:
    chance = random.Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(1_500):
        history: list[Write | Read] = []
        names = "abc"[: chance.randint(1, 3)]
        order = chance.sample(names, len(names))
        for name in names:
            start = chance.randint(0, 6)
            known = chance.random() < 0.7
            place = order.index(name) + 1 if chance.random() < 0.9 else chance.randint(1, 3)
            end = start + chance.randint(0, 4) + 0.5 if known else math.inf
            history.append(write(name, start, end, place if known else None))
        for _ in range(chance.randint(0, 2)):
            start = chance.randint(0, 8)
            history.append(read(start, start + chance.randint(0, 3) + 0.5, *order[: chance.randint(0, 3)]))
        expected = linearizable(history)
        verdicts[expected] += 1
        # A write that was told a place behind one that nobody saw: the judge need not know who is in between.
        if expected or not gaps(history):
            assert (check(history) is None) == expected, history
    assert min(verdicts.values()) > 100


def gaps(history: list[Write | Read]) -> bool:
    told = {operation.place for operation in history if isinstance(operation, Write) and operation.place}
    seen = max((len(operation.seen) for operation in history if isinstance(operation, Read)), default=0)
    return bool(told) and set(range(1, max(told) + 1)) - told - set(range(1, seen + 1)) != set()
