"""Writes `walrus_client/v1` from `proto/walrus/v1/*.proto`: `uv run python client/tools/generate_proto.py`.

The files are committed, so that installing the client needs no generator; `client/tests/test_generated.py` fails
when they are not what this writes. Give a folder as argument to write somewhere else.
"""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "proto" / "walrus" / "v1"
PACKAGE = REPOSITORY / "client" / "src"


def generate(into: Path) -> list[Path]:
    """Writes the Python modules below `into` and answers their paths."""
    sources = sorted(SOURCES.glob("*.proto"))
    # The left side of the mapping is the folder that the modules import each other from.
    arguments = [
        "protoc",
        f"-Iwalrus_client/v1={SOURCES}",
        f"-I{resources.files('grpc_tools') / '_proto'}",
        f"--python_out={into}",
        f"--pyi_out={into}",
        f"--grpc_python_out={into}",
        *[f"walrus_client/v1/{source.name}" for source in sources],
    ]
    status = protoc.main(arguments)
    if status != 0:
        raise SystemExit(status)
    package = into / "walrus_client" / "v1"
    return sorted(path for path in package.iterdir() if path.name.startswith(tuple(s.stem for s in sources)))


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    target.mkdir(parents=True, exist_ok=True)
    for written in generate(target):
        sys.stdout.write(f"{written}\n")
