"""A SparkSession on this machine that starts fast, finds this package in its workers, and is quiet.

Also the place that says what to do when there is no Java.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
# For queries that are over within a minute or two: the first compiler alone halves the start, at half the peak speed.
JAVA_SHORT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
JAVA_LONG: Final = "-XX:+UseParallelGC"
# What Python's workers find in their environment; they inherit that of the Java process which starts them. A thread of
# Arrow's takes an arena of glibc before code of this package runs, and glibc hands it to every second thread that
# follows. Pages of a topic leave holes in both arenas then: a worker took up to 400 MiB, and not 290.
_WORKER_ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "1"}


class JavaMissingError(Exception):
    """There is no Java that Spark can run on; the text says how to get one."""


def create_session(
    name: str = "walrus",
    *,
    master: str = "local[*,4]",
    heap: str = "1g",
    java_options: str = JAVA_LONG,
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Starts Spark in this process's Python, or returns the session that is there.

    `master` takes all cores, and allows a task four tries, so that a broker's restart does not end a query. What Java
    and the workers say goes to `log_file`; without one, only errors go to stderr. Raises JavaMissingError.
    """
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_HOME", str(_spark_home_with_compiled_python()))
    settings = SparkConf()
    for option, value in {
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_ENVIRONMENT.items()},
        **(conf or {}),
    }.items():
        settings.set(option, value)
    with ExitStack() as launching:
        launching.enter_context(_environment(_WORKER_ENVIRONMENT))
        output: dict[str, object] = {}
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            log = launching.enter_context(log_file.open("ab"))
            output = {"stdout": log, "stderr": log}
        gateway = launch_gateway(settings, popen_kwargs=output)  # type: ignore[no-untyped-call]
    context = SparkContext(conf=settings, gateway=gateway)
    context.setLogLevel("ERROR" if log_file is None else "WARN")
    return SparkSession(context)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started meanwhile; those that the user has set stay."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def check_java() -> None:
    """Raises JavaMissingError unless the Java that Spark would use is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    advice = (
        f"Spark needs Java {JAVA_VERSION_MIN} or newer. On Debian and Ubuntu: "
        "`apt-get install openjdk-17-jre-headless`; elsewhere set JAVA_HOME."
    )
    if java is None:
        raise JavaMissingError(f"no java in {home or 'PATH'}. {advice}")
    said = subprocess.run(  # noqa: S603 - the program that Spark would run
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise JavaMissingError(f"{java} is too old ({said.splitlines()[0] if said else 'no answer'}). {advice}")


def _spark_home_with_compiled_python() -> Path:
    """A SPARK_HOME whose workers import the installed pyspark instead of pyspark.zip.

    Spark puts the zip first on the path of each worker process, where Python compiles every module anew:
    more than a second for each kind of worker. A folder of the zip's name that links to the installed,
    compiled package costs nothing.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = Path(tempfile.mkdtemp(prefix="walrus-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    archives = home / "python" / "lib"
    (archives / "pyspark.zip").mkdir(parents=True)
    (archives / "pyspark.zip" / "pyspark").symlink_to(installed)
    for py4j in (installed / "python" / "lib").glob("py4j-*.zip"):
        (archives / py4j.name).symlink_to(py4j)
    return home
