"""The only door to the folder of an archive and to its checkpoint, on a local disk or wherever Hadoop reaches.

Paths inside are relative, with `/`. A name that begins with `_` or `.` is no data: readers of Parquet pass over it.
"""

import fcntl
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK: Final = "_walrus.lock"
# A file of its own: where a disk of the network is mounted, Python's lock and Java's are of one kind.
JAVA_LOCK: Final = "_walrus.java.lock"
# What locks a folder at a URL: a file that is renewed, and another one that tells the time.
LEASE: Final = "_walrus.lease"
PROBE: Final = "_walrus.now"
LEASE_S: Final = 60
RENEW_S: Final = 10


class InUseError(Exception):
    """Another process works in the folder."""


class UnreachableError(Exception):
    """Spark has no file system for the URL, or it does not let anybody in."""


class Folder(Protocol):
    """A folder that may not exist yet."""

    url: str

    def names(self, inside: str = "") -> list[str]:
        """The names in a folder of it; none where there is no such folder."""

    def read(self, name: str) -> str | None:
        """The text of a file; None where there is none."""

    def write(self, name: str, text: str) -> None:
        """Makes a file, whole or not at all, and durable on return; what was there is replaced."""

    def data_files(self) -> list[str]:
        """All Parquet files that readers of the folder see."""

    def move(self, name: str, to: str) -> None:
        """Moves a file within the folder."""

    def locked(self) -> Any:
        """A context in which no other run has the same folder locked; raises InUseError."""


def open_folder(place: Path | str, spark: "SparkSession | None" = None) -> Folder | None:
    """The folder at a path or URL; None for one that only Spark can open, as long as that has not started."""
    local = local_path(place)
    if local is not None:
        return LocalFolder(local, spark)
    return HadoopFolder(str(place), spark) if spark is not None else None


def local_path(place: Path | str) -> Path | None:
    """The path that a path or a `file:` URL names; None for other URLs, which keep their slashes."""
    parts = urlsplit(str(place))
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    # A URL has a scheme and a slash behind it: a name with a colon is a name.
    return None if parts.scheme and str(place).startswith(f"{parts.scheme}:/") else Path(place)


class LocalFolder:
    """A folder on a local disk, or on what is mounted like one."""

    def __init__(self, root: Path, spark: "SparkSession | None" = None) -> None:
        self._root = root.absolute()
        self._spark = spark
        self.url = str(self._root)

    def names(self, inside: str = "") -> list[str]:
        try:
            return sorted(path.name for path in (self._root / inside).iterdir())
        except FileNotFoundError:
            return []

    def read(self, name: str) -> str | None:
        try:
            return (self._root / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        # Spark keeps checksums beside its own files; one of an older text would make ours unreadable to it.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def data_files(self) -> list[str]:
        found = []
        for directory, folders, files in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            found += [Path(directory, name) for name in files if _is_data(name)]
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def move(self, name: str, to: str) -> None:
        target = self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._root / name).rename(target)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The kernel's locks, which go with their processes, however those end.

        Java has one of its own, because it writes: when Python is killed, it may still finish a micro-batch.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError from None
            try:
                with self._unlocked_by_java() if self._spark is None else self._locked_by_java(self._spark):
                    yield
            finally:
                # A program that is being started has a copy of the descriptor, which would hold the lock.
                fcntl.flock(file, fcntl.LOCK_UN)

    @contextmanager
    def _unlocked_by_java(self) -> Iterator[None]:
        with (self._root / JAVA_LOCK).open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUseError from None
            yield

    @contextmanager
    def _locked_by_java(self, spark: "SparkSession") -> Iterator[None]:
        java: Any = spark.sparkContext._jvm
        with closing(java.java.io.RandomAccessFile(str(self._root / JAVA_LOCK), "rw")) as file:
            if file.getChannel().tryLock() is None:
                raise InUseError
            yield


class HadoopFolder:
    """A folder at a URL, through the file systems that the running Spark has.

    There is no lock that all of them have, so who works in the folder renews a file; while that is fresh, it is locked.
    Of two that begin in the same moment Spark's own log of offsets ends one.
    """

    def __init__(self, url: str, spark: "SparkSession") -> None:
        from py4j.protocol import Py4JJavaError

        self.url = url.rstrip("/")
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        try:
            self._files = self._path("").getFileSystem(context._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise UnreachableError(f"{url}: Spark cannot open it ({error.java_exception.toString()})") from None

    def names(self, inside: str = "") -> list[str]:
        path = self._path(inside)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def read(self, name: str) -> str | None:
        if not self._files.exists(self._path(name)):
            return None
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def data_files(self) -> list[str]:
        found, waiting = [], [""]
        while waiting:
            inside = waiting.pop()
            path = self._path(inside)
            for status in self._files.listStatus(path) if self._files.exists(path) else []:
                name = status.getPath().getName()
                if status.isDirectory() and not name.startswith(("_", ".")):
                    waiting.append(f"{inside}{name}/")
                elif status.isFile() and _is_data(name):
                    found.append(f"{inside}{name}")
        return sorted(found)

    def move(self, name: str, to: str) -> None:
        self._files.mkdirs(self._path(to).getParent())
        if not self._files.rename(self._path(name), self._path(to)):
            raise OSError(f"{self.url}/{name} could not be moved to {to}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One that was killed has it locked for LEASE_S more."""
        from py4j.protocol import Py4JJavaError

        if self._is_leased():
            raise InUseError
        mine, done = str(uuid.uuid4()), threading.Event()

        def renew() -> None:
            while not done.wait(RENEW_S):
                with suppress(Py4JJavaError):  # the next one may reach it again
                    self.write(LEASE, mine)

        self.write(LEASE, mine)
        renewing = threading.Thread(target=renew, name="walrus-lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            done.set()
            renewing.join()
            self._files.delete(self._path(LEASE), False)

    def _is_leased(self) -> bool:
        """Both ages are told by the clock of the file system."""
        if not self._files.exists(self._path(LEASE)):
            return False
        self.write(PROBE, "")
        renewed, now = (self._files.getFileStatus(self._path(name)).getModificationTime() for name in (LEASE, PROBE))
        self._files.delete(self._path(PROBE), False)
        return bool(now - renewed < LEASE_S * 1000)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}".rstrip("/"))


def _is_data(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))
