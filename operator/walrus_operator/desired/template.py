"""A pod template of which another release knows more: what is known here changes, the rest stays. Pure."""

from __future__ import annotations

from typing import Any


def carried_over(found: Any, *, before: Any, now: Any) -> Any:
    """What is found, with what differs between `before` and `now`: what this release makes of former and new inputs."""
    if before == now:
        return found
    if isinstance(found, dict) and isinstance(before, dict) and isinstance(now, dict):
        left = {key: value for key, value in found.items() if key in now or key not in before}
        return left | {
            key: carried_over(found[key], before=before[key], now=value) if key in found and key in before else value
            for key, value in now.items()
        }
    if _are_named(found) and _are_named(before) and _are_named(now):
        made = carried_over(_by_name(found), before=_by_name(before), now=_by_name(now))
        return list(made.values())
    return now


def _are_named(value: Any) -> bool:
    """Whether it is a list of things with names, such as containers, variables and volumes."""
    return isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value)


def _by_name(value: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["name"]: one for one in value}
