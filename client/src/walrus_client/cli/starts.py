"""From a point as a person writes it to the offset of each partition."""

from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import print_note
from walrus_client.cli.points import AtOffset, Point, Since
from walrus_client.client import Client
from walrus_client.model import OffsetPlace


def starts_of(client: Client, topic: str, partitions: list[int], point: Point, ends: dict[int, int]) -> dict[int, int]:
    """The offset of each partition that a point names, where they end at *ends*; raises Failed behind an end."""
    match point:
        case OffsetPlace.LATEST:
            return ends
        case Since(timestamp_ms):
            found = client.list_offsets(topic, dict.fromkeys(partitions, timestamp_ms))
            return {number: ends[number] if (at := found[number].offset) is None else at for number in partitions}
    first = offsets_of(client, topic, partitions, OffsetPlace.EARLIEST)
    if not isinstance(point, AtOffset):
        return first
    starts = {}
    for number in partitions:
        offset = point.offset if point.offset >= 0 else ends[number] + point.offset
        if offset > ends[number]:
            raise Failed(f"partition {number} of {topic} ends at {ends[number]}: there is no offset {offset} yet")
        if 0 <= point.offset < first[number]:
            print_note(f"partition {number} of {topic} begins at {first[number]}")
        starts[number] = max(offset, first[number])
    return starts


def offsets_of(client: Client, topic: str, partitions: list[int], place: OffsetPlace) -> dict[int, int]:
    """The offset of a place in each partition."""
    found = client.list_offsets(topic, dict.fromkeys(partitions, place))
    return {number: offset for number, at in found.items() if (offset := at.offset) is not None}
