"""Evaluates the few forms of Prometheus' language that the alerts use, and its notation of samples, for tests alone.

It has selectors, ranges under `increase` and `rate`, `absent`, `time`, `sum by`, one comparison with a number, a
difference with a number on the left, `or`, `unless` and `unless on`. Everything else raises `UnknownFormError`, so that
nobody takes silence for an answer. https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

LOOKBACK_S = 300.0
NAME = "__name__"

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Samples = Mapping[Labels, list[tuple[float, float]]]
"""The samples of each series: times in seconds, and values."""

_TOKEN = re.compile(r'\s*(?:(?P<text>"[^"]*")|(?P<word>[A-Za-z_][\w:]*)|(?P<number>\d+[smh]?)|(?P<sign>[=!<>~]+|\S))')
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class UnknownFormError(Exception):
    """The expression has a form that is not known here."""


def seconds(text: str) -> float:
    """A duration of one unit."""
    if text[-1] not in _UNITS or not text[:-1].isdigit():
        raise UnknownFormError(f"duration {text!r}")
    return float(text[:-1]) * _UNITS[text[-1]]


def values(notation: str) -> list[float | None]:
    """The samples of a series: `1x3` is 1 four times, `0+2x3` is 0, 2, 4, 6, and `_` is none."""
    made: list[float | None] = []
    for part in notation.split():
        found = re.fullmatch(
            r"(?P<none>_)(?:x(?P<many>\d+))?|(?P<first>-?\d+)(?P<step>[+-]\d+)?(?:x(?P<times>\d+))?", part
        )
        if found is None:
            raise UnknownFormError(f"samples {part!r}")
        if found["none"]:
            made += [None] * int(found["many"] or 1)
        else:
            first, step = float(found["first"]), float(found["step"] or 0)
            made += [first + step * place for place in range(int(found["times"] or 0) + 1)]
    return made


def series(text: str) -> Labels:
    """The labels of a series as it is written, its name among them."""
    name, matchers, _ = Expression(text, {}, 0.0).selector()
    return frozenset({(NAME, name), *((label, value) for label, _, value in matchers)})


def evaluate(text: str, samples: Samples, at: float) -> Vector:
    """What an expression finds at a time."""
    return Expression(text, samples, at).whole()


@dataclass
class Expression:
    """An expression that is read from the left, and evaluated as it is read."""

    text: str
    samples: Samples
    at: float

    def __post_init__(self) -> None:
        self._tokens = [(found.lastgroup or "", found[found.lastgroup or 0]) for found in _TOKEN.finditer(self.text)]
        self._place = 0

    def whole(self) -> Vector:
        """All of it."""
        found = self._or()
        if self._place < len(self._tokens):
            raise UnknownFormError(f"{self._peek()!r} in {self.text!r}")
        return _vector(found)

    def selector(self) -> tuple[str, list[tuple[str, str, str]], float | None]:
        """A name, matchers of labels, and a range in seconds where there is one."""
        name, matchers, within = self._take(), [], None
        if self._accept("{"):
            while not self._accept("}"):
                label, sign, value = self._take(), self._take(), self._take()
                matchers.append((label, sign, value.strip('"')))
                self._accept(",")
        if self._accept("["):
            within = seconds(self._take())
            self._expect("]")
        return name, matchers, within

    def _or(self) -> Vector | float:
        left = self._unless()
        while self._accept("or"):
            right, there = _vector(self._unless()), {_bare(labels) for labels in _vector(left)}
            left = _vector(left) | {labels: value for labels, value in right.items() if _bare(labels) not in there}
        return left

    def _unless(self) -> Vector | float:
        left = self._comparison()
        while self._accept("unless"):
            on = self._names() if self._accept("on") else None
            gone = {_chosen(labels, on) for labels in _vector(self._comparison())}
            left = {labels: value for labels, value in _vector(left).items() if _chosen(labels, on) not in gone}
        return left

    def _comparison(self) -> Vector | float:
        left = self._difference()
        if self._peek() not in _COMPARISONS:
            return left
        holds, right = _COMPARISONS[self._take()], self._difference()
        if not isinstance(right, float):
            raise UnknownFormError(f"a comparison of two vectors in {self.text!r}")
        return {labels: value for labels, value in _vector(left).items() if holds(value, right)}

    def _difference(self) -> Vector | float:
        left = self._primary()
        if not self._accept("-"):
            return left
        right = _vector(self._primary())
        if not isinstance(left, float):
            raise UnknownFormError(f"a difference of two vectors in {self.text!r}")
        return {_bare(labels): left - value for labels, value in right.items()}

    def _primary(self) -> Vector | float:
        kind, word = self._tokens[self._place] if self._place < len(self._tokens) else ("", "")
        if kind == "number":
            return float(self._take())
        if word == "time":
            self._take()
            self._expect("(")
            self._expect(")")
            return self.at
        if word in ("increase", "rate", "absent"):
            self._take()
            self._expect("(")
            found = self._absent() if word == "absent" else self._grown(per_second=word == "rate")
            self._expect(")")
            return found
        if word == "sum":
            return self._sum()
        if kind != "word":
            raise UnknownFormError(f"{word!r} in {self.text!r}")
        return self._instant()

    def _instant(self) -> Vector:
        name, matchers, within = self.selector()
        if within is not None or self._peek() == "(":
            raise UnknownFormError(f"{name!r} in {self.text!r}")
        found = {}
        for labels, told in self._selected(name, matchers).items():
            recent = [value for time, value in told if self.at - LOOKBACK_S < time <= self.at]
            if recent:
                found[labels] = recent[-1]
        return found

    def _absent(self) -> Vector:
        return {} if _vector(self._or()) else {frozenset(): 1.0}

    def _grown(self, *, per_second: bool) -> Vector:
        name, matchers, within = self.selector()
        if within is None:
            raise UnknownFormError(f"no range in {self.text!r}")
        found = {}
        for labels, told in self._selected(name, matchers).items():
            window = [sample for sample in told if self.at - within < sample[0] <= self.at]
            if len(window) > 1:
                grown = _increase(window, self.at - within, self.at)
                found[_bare(labels)] = grown / within if per_second else grown
        return found

    def _sum(self) -> Vector:
        self._take()
        self._expect("by")
        by, made = self._names(), Vector()
        self._expect("(")
        for labels, value in _vector(self._or()).items():
            made[_chosen(labels, by)] = made.get(_chosen(labels, by), 0.0) + value
        self._expect(")")
        return made

    def _selected(self, name: str, matchers: list[tuple[str, str, str]]) -> Samples:
        return {
            labels: told
            for labels, told in self.samples.items()
            if dict(labels)[NAME] == name
            and all(_matches(dict(labels).get(label, ""), sign, value) for label, sign, value in matchers)
        }

    def _names(self) -> frozenset[str]:
        self._expect("(")
        names = set()
        while not self._accept(")"):
            names.add(self._take())
            self._accept(",")
        return frozenset(names)

    def _peek(self) -> str:
        return self._tokens[self._place][1] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        taken = self._peek()
        if not taken:
            raise UnknownFormError(f"{self.text!r} ends too soon")
        self._place += 1
        return taken

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._place += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise UnknownFormError(f"{self._peek()!r} instead of {token!r} in {self.text!r}")


def _matches(value: str, sign: str, wanted: str) -> bool:
    match sign:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case "=~":
            return re.fullmatch(wanted, value) is not None
        case "!~":
            return re.fullmatch(wanted, value) is None
    raise UnknownFormError(f"matcher {sign!r}")


def _increase(window: list[tuple[float, float]], start: float, end: float) -> float:
    """How much a counter grew, extended to both ends of the range as Prometheus does it."""
    (first_at, first), (last_at, _) = window[0], window[-1]
    grown = sum(after - before if after >= before else after for (_, before), (_, after) in pairwise(window))
    sampled = last_at - first_at
    each = sampled / (len(window) - 1)
    before, after = (gap if gap < 1.1 * each else each / 2 for gap in (first_at - start, end - last_at))
    if grown > 0 and first >= 0:
        before = min(before, sampled * first / grown)
    return grown * (sampled + before + after) / sampled


def _bare(labels: Labels) -> Labels:
    return frozenset(one for one in labels if one[0] != NAME)


def _chosen(labels: Labels, names: frozenset[str] | None) -> Labels:
    return _bare(labels) if names is None else frozenset(one for one in labels if one[0] in names)


def _vector(value: Vector | float) -> Vector:
    if isinstance(value, float):
        raise UnknownFormError("a number where a vector is expected")
    return value
