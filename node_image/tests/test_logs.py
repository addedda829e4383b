"""Strangers' words in log lines: they forge no line and say nothing to the terminal on which it is read."""

import asyncio
import io
import json
import logging
from collections.abc import Callable

from answering import answering
from node_process import NodeProcess
from waiting import wait_until
from walrus_node.logs import _Lines

FORGED = "\x1b[2J\n2026-01-01 INFO walrus_node: all is well\r\u202e\ud800"


def test_what_a_seed_answers_makes_no_line_of_its_own(node: Callable[..., NodeProcess]) -> None:
    """A node waits for admission and says why: the words are those of whoever listens at the seed's address."""

    async def run() -> str:
        async with answering({"refused": FORGED}) as (seed, _):
            joiner = node("--join", seed).start()
            await asyncio.to_thread(
                wait_until, "it says why it waits", lambda: joiner.alive() and "all is well" in joiner.log.read_text()
            )
            assert "\x1b" not in json.loads(joiner.get("/readyz")[1])["missing"][0]
            return joiner.log.read_bytes().decode()

    log = asyncio.run(run())
    assert "\x1b" not in log
    assert r"\x1b[2J\n2026-01-01 INFO walrus_node: all is well\r\u202e\ud800" in log
    assert not any(line.startswith("2026-01-01") for line in log.splitlines())


def test_an_errors_words_forge_no_line_in_its_traceback() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(_Lines("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed\nINFO or not")
    first, *traceback = written.getvalue().rstrip("\n").split("\n")
    assert first == r"ERROR it failed\nINFO or not"
    assert all(line.startswith("  ") for line in traceback)
    assert "\x1b" not in written.getvalue()
