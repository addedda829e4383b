"""Refuses comments that begin like the end of a sentence: whoever reads one file must learn from it what is spoken of.

`python tools/comments.py` looks through the Rust and the Python files that git knows and exits with 1 if it finds such
comments. It reads Rust's line and block comments, and Python's comments and docstrings; the text of strings is none.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BEGINNINGS: Final = re.compile(r"(of|and|such|see the module)\b", re.IGNORECASE)

GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")

ADVICE: Final = (
    "These comments begin with a bare Of, And, Such or See the module. Make each of them a whole sentence that names "
    "what it is about, for somebody who reads this file alone:"
)


@dataclass(frozen=True)
class Comment:
    """A comment or docstring, without the signs around it. Line comments that follow each other are one."""

    line: int
    text: str

    def begins_badly(self) -> bool:
        """Whether its first words leave out what it is about."""
        return BEGINNINGS.match(self.text.lstrip()) is not None


# What Rust's text is made of where it matters for comments. A quote may also begin a lifetime, which has no second one.
RUST_PARTS: Final = re.compile(
    r"""
    (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | [bc]?r(?P<hashes>\#*)".*?"(?P=hashes)
    | [bc]?"(?:\\.|[^"\\])*"
    | b?'(?:\\[^\n]+?|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)
RUST_NEXT: Final = re.compile(r"""//|/\*|[bc]?r\#*"|[bc]?"|b?'|\w+""")
BLOCK_ENDS: Final = re.compile(r"/\*|\*/")
SIGNS: Final = re.compile(r"^(//[/!]?|/\*[*!]?)")


def rust_comments(source: str) -> Iterator[Comment]:
    """The comments of a Rust file, in order."""
    previous_end = -1  # the line on which the line comment before ended, if it stood alone there
    position = 0
    while found := RUST_NEXT.search(source, position):
        part = RUST_PARTS.match(source, found.start())
        if part is None:
            position = found.end()
            continue
        position = part.end()
        line = source.count("\n", 0, part.start()) + 1
        if part["block"]:
            position = _end_of_block(source, part.end())
            yield Comment(line, SIGNS.sub("", source[part.start() : position].removesuffix("*/")))
        elif part["line"]:
            stands_alone = not source[source.rfind("\n", 0, part.start()) + 1 : part.start()].strip()
            if not (stands_alone and previous_end == line - 1):
                yield Comment(line, SIGNS.sub("", part["line"]))
            previous_end = line if stands_alone else -1


def _end_of_block(source: str, position: int) -> int:
    depth = 1
    while depth and (found := BLOCK_ENDS.search(source, position)):
        depth += 1 if found[0] == "/*" else -1
        position = found.end()
    return len(source) if depth else position


def python_comments(source: str) -> Iterator[Comment]:
    """The comments and docstrings of a Python file."""
    previous_end = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            stands_alone = not token.line[: token.start[1]].strip()
            if not (stands_alone and previous_end == line - 1):
                yield Comment(line, token.string.lstrip("#:"))
            previous_end = line if stands_alone else -1
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield Comment(node.body[0].lineno, text)


def comments(path: Path) -> Iterator[Comment]:
    """The comments of a file, by the language that its name tells."""
    source = path.read_text()
    return rust_comments(source) if path.suffix == ".rs" else python_comments(source)


def main() -> int:
    """Looks through the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py"], check=True, capture_output=True, text=True)  # noqa: S607
    bad = [
        f"    {path}:{comment.line}: {comment.text.strip().splitlines()[0]}"
        for path in map(Path, listed.stdout.splitlines())
        if path.exists() and not path.name.endswith(GENERATED)
        for comment in comments(path)
        if comment.begins_badly()
    ]
    if bad:
        sys.stderr.write("\n".join([ADVICE, *bad, ""]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
