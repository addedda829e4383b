"""Strangers' words, as they may be shown: in log lines, states and errors."""

from __future__ import annotations

_CHARACTERS_MAX = 300


def escaped(text: str) -> str:
    """One line that says nothing to a terminal: what cannot be printed becomes escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def told(words: object) -> str:
    """What the other side of a connection says, as part of a sentence."""
    return escaped(str(words)[:_CHARACTERS_MAX])
