"""Settings of brokers that have no field of their own, by the names that brokers have for them.

Two tables say which there are: `DYNAMIC` are settings of the cluster, as `walrus cluster config` shows them, `STATIC`
are options of `walrus-node`. Tests compare both with the brokers' own lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated

from pydantic import Field, field_validator

from walrus_operator.api.schema import Model
from walrus_operator.api.units import milliseconds_of

LOG_LEVEL = "log.level"
"""The one dynamic setting that is no number, and is each broker's own: it is told, not stored."""
LOG_LEVEL_DEFAULT = "info"

Check = Callable[[str], str | None]
"""What is wrong with a value, in words that follow its name; None: nothing."""


def _number(least: int, most: int) -> Check:
    def check(text: str) -> str | None:
        fine = re.fullmatch(r"\d{1,16}", text) and least <= int(text) <= most
        return None if fine else f"must be a number from {least} to {most}"

    return check


def _spelled(pattern: str, sentence: str) -> Check:
    return lambda text: None if re.fullmatch(pattern, text) else sentence


def _share(text: str) -> str | None:
    fine = re.fullmatch(r"\d{1,3}([.]\d{1,6})?", text) and float(text) <= 1
    return None if fine else "must be a number from 0 to 1, for example 0.01"


def _budget(text: str) -> str | None:
    match = re.fullmatch(r"(\d{1,15})(KiB|MiB|GiB|TiB)?", text)
    unit = {"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
    fine = match and int(match[1]) << unit[match[2] or ""] >= 32 << 20
    return None if fine else "must be an amount of 32MiB or more, for example 256MiB"


_DAY_MS = 86_400_000
_time = _spelled(r"0*[1-9]\d{0,8}(ms|s|m|h|d)", "must be a time such as 500ms, 30s or 10m")
_time_or_none = _spelled(r"0|\d{1,9}(ms|s|m|h|d)", "must be a time such as 500ms or 30s, or 0 for none")
_level = r"([a-z_][a-z0-9_:]*=)?(error|warn|info|debug|trace|off)"

DYNAMIC: Mapping[str, Check] = {
    LOG_LEVEL: _spelled(
        f"{_level}(,{_level})*", "must be error, warn, info, debug, trace or off, or a filter: info,walrus_broker=debug"
    ),
    "segments.min_age_ms": _number(0, _DAY_MS),
    "segments.rolls_per_second_max": _number(1, 1_000_000),
    "copies.grace_ms": _number(0, 365 * _DAY_MS),
    "copies.moves_max": _number(0, 10_000),
    "copies.imbalance_max_points": _number(1, 100),
    "copies.bytes_per_second": _number(1, 1 << 40),
    "scrub.bytes_per_second": _number(1, 1 << 40),
    "scrub.interval_ms": _number(10, 365 * _DAY_MS),
    "disks.free_bytes_min": _number(0, 1 << 50),
    "topics.partitions_max": _number(1, 10_000_000),
    "topics.partitions_default": _number(1, 10_000),
    "topics.creations_per_second_max": _number(1, 1_000_000),
}
"""Settings that brokers follow while they run."""

STATIC: Mapping[str, Check] = {
    "no-auto-create-topics": _spelled("true|false", 'must be "true" or "false"'),
    "memory-budget": _budget,
    "frame-bytes-max": _number(1, 16 << 20),
    "connections-max": _number(1, 2**31 - 1),
    "connections-per-address-max": _number(1, 2**31 - 1),
    "first-byte-timeout": _time,
    "header-timeout": _time,
    "idle-timeout": _time,
    "text-idle-timeout": _time,
    "hand-over-timeout": _time_or_none,
    "otlp-endpoint": _spelled(r"http://[A-Za-z0-9.-]+:\d{1,5}", "must be http://HOST:PORT"),
    "otlp-share": _share,
}
"""Options that brokers read at their start."""

FIELDS: Mapping[str, str] = {
    "segments.max_entries": "segments.maxEntries",
    "segments.max_bytes": "segments.maxBytes",
    "segments.max_age_ms": "segments.maxAge",
    "segments.check_interval_ms": "segments.checkInterval",
    "segment-entries-max": "segments.maxEntries",
    "segment-bytes-max": "segments.maxBytes",
    "segment-age-max": "segments.maxAge",
    "monitor-check-ms": "segments.checkInterval",
    "segment-age-min": "config.dynamic, as segments.min_age_ms",
    "log-level": f"config.dynamic, as {LOG_LEVEL}",
    "finalize": "updatePolicy.finalize",
    "backend": "pools[].backend",
    "fsync": "fsync.mode",
    "replication-factor": "replication.factor",
    "write-quorum": "replication.writeQuorum",
    "zone": "pools[].zone",
    **{f"{protocol}-listener": "listeners" for protocol in ("text", "grpc", "kafka")},
}
"""Settings and options for which the spec has a place of its own."""

Value = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": 256}, union_mode="left_to_right"),
]
Values = Annotated[dict[str, Value], Field(max_length=64)]


class Config(Model):
    """Settings of brokers that have no field of their own."""

    dynamic: Values = Field(default_factory=dict)
    """Settings of the cluster, as `walrus cluster config` names them, and `log.level`. A change reaches brokers while
    they run."""
    static: Values = Field(default_factory=dict)
    """Options of `walrus-node`, without the dashes in front, for example `{no-auto-create-topics: "true"}`. A change
    restarts the brokers, one after the other."""

    @field_validator("dynamic")
    @classmethod
    def _check_dynamic(cls, told: Mapping[str, int | str]) -> Mapping[str, int | str]:
        return _checked(told, DYNAMIC, other=STATIC, names=("dynamic", "static"))

    @field_validator("static")
    @classmethod
    def _check_static(cls, told: Mapping[str, int | str]) -> Mapping[str, int | str]:
        return _checked(told, STATIC, other=DYNAMIC, names=("static", "dynamic"))

    @property
    def entries(self) -> dict[str, int]:
        """The settings that the cluster stores."""
        return {name: int(value) for name, value in self.dynamic.items() if name != LOG_LEVEL}

    @property
    def log_level(self) -> str | None:
        """What brokers shall log; None: what they are told by others."""
        level = self.dynamic.get(LOG_LEVEL)
        return None if level is None else str(level)

    @property
    def options(self) -> dict[str, str]:
        """The options of `walrus-node`, as text."""
        return {name: str(value) for name, value in self.static.items()}


def hand_over_ms(options: Mapping[str, str]) -> int | None:
    """How long brokers with these options hand over before they stop; None: as long as they do anyway."""
    told = options.get("hand-over-timeout")
    return milliseconds_of(told) if told is not None else None


def _checked(
    told: Mapping[str, int | str], known: Mapping[str, Check], *, other: Mapping[str, Check], names: tuple[str, str]
) -> Mapping[str, int | str]:
    wrong = [sentence for name, value in sorted(told.items()) if (sentence := _wrong(name, value, known, other, names))]
    if wrong:
        raise ValueError("; ".join(wrong[:5]))
    return told


def _wrong(
    name: str, value: int | str, known: Mapping[str, Check], other: Mapping[str, Check], names: tuple[str, str]
) -> str | None:
    mine, others = names
    if name in known:
        why = known[name](str(value))
        return f"{name} {why}, not {str(value)[:60]!r}" if why is not None else None
    if name in other:
        return f"{name} is {others}: write it under config.{others}"
    if name in FIELDS:
        return f"{name} has a place of its own: spec.{FIELDS[name]}"
    nearest = get_close_matches(name, known, n=1, cutoff=0.0)
    return f"there is no {mine} setting {name[:60]!r}, or the operator sets it; the nearest is {nearest[0]}"
