"""A driver of its own, which kills itself where it is told: `driver.py SERVERS TOPICS FOLDER BATCH before|after`.

Its sink writes the offsets of each micro-batch to FOLDER/out/BATCH.json; one that is done again replaces its file.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark_walrus.session import JAVA_SHORT, create_session

servers, topics, folder, deadly_batch, moment = sys.argv[1:]
out = Path(folder) / "out"


def sink(rows, batch_id):
    offsets = [(row.topic, row.partition, row.offset) for row in rows.select("topic", "partition", "offset").collect()]
    deadly = batch_id == int(deadly_batch)
    if deadly and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    written = out / f"{batch_id}.new"
    written.write_text(json.dumps(offsets))
    written.rename(out / f"{batch_id}.json")
    if deadly and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)


out.mkdir(parents=True, exist_ok=True)
spark = create_session("driver", java_options=JAVA_SHORT, log_file=Path(folder) / "spark.log")
source = spark.readStream.format("walrus").option("bootstrap.servers", servers).option("subscribe", topics)
rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "300").load()
query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
