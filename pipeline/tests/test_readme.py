"""The README's example does what it says."""

import re
from pathlib import Path

from walrus_client import OutRecord

README = Path(__file__).parent.parent / "README.md"


def test_the_example_counts_orders_by_key(spark, cluster, client, capsys):
    client.create_topic("orders")
    client.append("orders", [OutRecord(b"1", key=b"ann"), OutRecord(b"2", key=b"bob"), OutRecord(b"3", key=b"ann")])
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(example.replace("localhost:9090", cluster.bootstrap), {})
    shown = capsys.readouterr().out
    assert re.search(r"\[61 6E 6E\]\|\s+2\|", shown)
