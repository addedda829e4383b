"""`python -m walrus_bench`."""

from walrus_bench.cli import app

app(prog_name="walrus-bench")
