"""What Spark says about the archive: its records as columns, and its aggregates. All in one reading of the Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark_walrus.archive import read_archive

from flights.proof import Delays, Records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENT: Final = "id bigint, year int, month int, day int, hour int, dep_delay int, carrier string, origin string"


@dataclass(frozen=True)
class Lake:
    """The archive as Spark sees it. `by_day_and_hour` has columns day, hour, flights, delay_minutes."""

    records: Records
    by_carrier: Mapping[str, Delays]
    by_month: Mapping[str, Delays]
    by_day_and_hour: pd.DataFrame


def query(spark: "SparkSession", path: Path) -> Lake:
    """Reads the archive and has Spark aggregate it."""
    archived = read_archive(spark, path).selectExpr(
        "offset",
        "cast(key AS string) AS key",
        "unix_millis(timestamp) AS timestamp_ms",
        "crc32(value) AS checksum",
        f"from_json(cast(value AS string), '{EVENT}') AS event",
    )
    events = archived.select("offset", "key", "timestamp_ms", "checksum", "event.*").cache()
    events.createOrReplaceTempView("flights")
    columns = events.select("offset", "id", "key", "timestamp_ms", "checksum").toArrow()
    groups = spark.sql(
        "SELECT carrier, month, count(*) AS flights, avg(dep_delay) AS mean_minutes FROM flights "
        "GROUP BY GROUPING SETS ((carrier), (month))"
    ).collect()
    by_day_and_hour = spark.sql(
        "SELECT make_date(year, month, day) AS day, hour, count(*) AS flights, avg(dep_delay) AS delay_minutes "
        "FROM flights GROUP BY ALL ORDER BY ALL"
    ).toPandas()
    events.unpersist()
    return Lake(
        Records(
            offset=_numbers(columns["offset"]),
            id=_numbers(columns["id"].fill_null(-1)),
            key=columns["key"].to_numpy(),
            timestamp_ms=_numbers(columns["timestamp_ms"]),
            checksum=_numbers(columns["checksum"]),
        ),
        {row.carrier: Delays(row.flights, row.mean_minutes) for row in groups if row.carrier is not None},
        {str(row.month): Delays(row.flights, row.mean_minutes) for row in groups if row.month is not None},
        by_day_and_hour,
    )


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(), dtype=np.int64)
