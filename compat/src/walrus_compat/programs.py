"""The programs, in the order in which they are tried."""

from collections.abc import Sequence

from walrus_compat.program import Program

PROGRAMS: Sequence[Program] = []
