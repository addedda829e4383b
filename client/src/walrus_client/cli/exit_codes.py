"""How commands end: the exit codes, and the one place that maps errors to them."""

# ruff: noqa: N818 - as in `errors`, a name says what is the matter

from enum import IntEnum

from walrus_client import errors
from walrus_client.dev import DevError


class ExitCode(IntEnum):
    """What a script can tell from a command's end."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOTHING_THERE = 4
    OUTCOME_UNKNOWN = 5


HELP = (
    "Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 no node could be reached or serve in time,"
    " 4 there is nothing (get: no new entry), 5 it may have been done or not."
)


class Failed(Exception):
    """The command did not do what it should; the message is for the user."""


class NothingThere(Exception):
    """The command found nothing."""


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code of an error that a user can cause; None for a mistake of ours."""
    match error:
        case NothingThere():
            return ExitCode.NOTHING_THERE
        case errors.RetryableError():
            return ExitCode.NOT_REACHABLE
        case errors.OutcomeUnknown():
            return ExitCode.OUTCOME_UNKNOWN
        case errors.WalrusError() | DevError() | Failed() | OSError() | UnicodeError():
            return ExitCode.FAILED
    return None
