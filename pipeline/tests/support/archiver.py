"""A run of the archive in a process of its own, to be killed: `archiver.py SERVERS TOPIC FOLDER`."""

import sys
from pathlib import Path

from pyspark_walrus.archive import archive
from pyspark_walrus.session import JAVA_SHORT, create_session

servers, topic, folder = sys.argv[1:]
log_file = Path(folder).with_suffix(".log")
spark = create_session("archiver", master="local[2,4]", java_options=JAVA_SHORT, log_file=log_file)
archive(spark, bootstrap_servers=servers, topic=topic, path=folder, records_per_batch_max=100)
