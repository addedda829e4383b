"""Walrus topics as a Spark source (`format("walrus")`) and the archive of a topic in Parquet.

Spark imports every installed package named `pyspark_*` and registers its `DefaultSource`, so nothing has to be
registered by hand. It is loaded when it is asked for: the `walrus` command line, which finds its `archive` here,
starts without pyspark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_walrus.source import WalrusDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        from pyspark_walrus.source import WalrusDataSource

        return WalrusDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
