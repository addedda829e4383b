"""Walrus topics as a Spark source (`format("walrus")`) and the archive of a topic in Parquet.

Spark imports every installed package named `pyspark_*` and registers its `DefaultSource`; so the import
stays light, and nothing has to be registered by hand.
"""

from pyspark_walrus.source import WalrusDataSource as DefaultSource

__all__ = ["DefaultSource"]
