"""What keeps an action from being done now."""

from __future__ import annotations

from walrus_operator.plan.actions import Wait


class Stopped(Exception):  # noqa: N818 - called by what happened
    """An action cannot be done now. Carries the gate that it met."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.detail)
        self.wait = wait
