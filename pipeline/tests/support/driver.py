"""A driver of its own, which kills itself where it is told: `driver.py SERVERS TOPICS FOLDER BATCH MOMENT`.

MOMENT is before or after the sink has the micro-batch, or committed, when the checkpoint says that it is done.
The sink writes the offsets of each micro-batch to FOLDER/out/BATCH.json; one that is done again replaces its file.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark_walrus.session import JAVA_SHORT, create_session

servers, topics, folder, deadly_batch, moment = sys.argv[1:]
out = Path(folder) / "out"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def sink(rows, batch_id):
    offsets = [(row.topic, row.partition, row.offset) for row in rows.select("topic", "partition", "offset").collect()]
    deadly = batch_id == int(deadly_batch)
    if deadly and moment == "before":
        die()
    written = out / f"{batch_id}.new"
    written.write_text(json.dumps(offsets))
    written.rename(out / f"{batch_id}.json")
    if deadly and moment == "after":
        die()


out.mkdir(parents=True, exist_ok=True)
spark = create_session("driver", master="local[2,4]", java_options=JAVA_SHORT, log_file=Path(folder) / "spark.log")
source = spark.readStream.format("walrus").option("bootstrap.servers", servers).option("subscribe", topics)
rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100").load()
query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
query = query.trigger(availableNow=True).start()
while not query.awaitTermination(0.01):
    if moment == "committed" and Path(folder, "checkpoint", "commits", deadly_batch).exists():
        die()
spark.stop()
