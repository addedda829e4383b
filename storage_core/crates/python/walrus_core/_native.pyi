"""The compiled half of `walrus_core`; import from there."""

# ruff: noqa: N818 - an exception's name says what is the matter

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, ClassVar, final

from typing_extensions import Buffer as ReadableBuffer

class WalrusError(Exception):
    """Root of all exceptions that Walrus raises but `OSError` and `ValueError`."""

    reason: str
    """Stable name of the error's kind."""
    facts: dict[str, Any]
    """Fields of the error, as the message names them."""

class RetryableError(WalrusError):
    """Nothing happened; the same call may go through later."""

class RejectedError(WalrusError):
    """Nothing happened, and the same call will be refused again."""

class OutcomeUnknown(WalrusError):
    """The call may have taken effect. Ask again with the same ids, or look."""

class CorruptionError(WalrusError):
    """Stored or sent bytes are not what was written."""

class AddressInUse(WalrusError):
    """Another program listens on that address."""

class Locked(WalrusError):
    """Another process has the directory open."""

class UnsupportedFormat(WalrusError):
    """A newer Walrus wrote the store. Upgrade this one."""

class OffsetOutOfRange(RejectedError):
    """No record has that offset: it was trimmed, or is not written yet."""

class InvalidBatch(RejectedError):
    """The records cannot be a batch, or the batch cannot be opened here."""

class Rejected(RejectedError):
    """The metadata refused a command."""

@final
class Metadata:
    """The cluster's state, and the pure function that changes it.

    A copy costs a pointer, so does publishing it to a `DataPlane`.
    """

    LEVEL: ClassVar[int]  # the highest level of commands that this version knows

    def __new__(cls, level: int = ...) -> Metadata:
        """Makes the state before the first command. Commands are known up to *level*, by default all there are."""

    @staticmethod
    def restore(snapshot: bytes, level: int = ...) -> Metadata:
        """Reads what `snapshot` gave. Raises `CorruptionError`; where a newer Walrus wrote it `UnsupportedFormat`, or
        `Rejected` where its cluster is at a higher level.
        """

    def snapshot(self) -> bytes:
        """The whole state as versioned JSON."""

    def apply(self, envelope: bytes) -> bytes:
        """Applies one command, given as the JSON of its envelope; gives JSON with `version` and `answer`.

        Raises `Rejected` with the reason and facts of the refusal. A command whose id is remembered changes nothing
        and is answered, or refused, as it was the first time.
        """

    @property
    def version(self) -> int:
        """Version of the state; it grows by one with every command that changed something."""

    @property
    def level(self) -> int:
        """The level of commands that the cluster has reached; 0 until it is founded."""

    def copy(self) -> Metadata:
        """Makes an independent state that is equal now."""

    def continued_as(self, cluster_id: str) -> Metadata:
        """Makes the same state as that of another cluster, named by its UUID: for a forced recovery."""

    @property
    def former_ids(self) -> list[str]:
        """The UUIDs that the cluster had before forced recoveries, the oldest first."""

    def view(self) -> dict[str, Any]:
        """The state as dicts and lists, in the shape of its JSON."""

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes by id, in the shape of their JSON."""

    def gone_disks(self) -> list[str]:
        """Disks that were taken out of the cluster for good."""

    def config(self) -> dict[str, Any]:
        """The cluster-wide settings: `version` of their last change (0: none), and `entries` by key."""

    def census(self, alive: Sequence[int]) -> dict[str, Any]:
        """Counts per node id (as text) the segments `led`, `held` and of these `filling` (no whole copy yet), and the
        `bytes` of sealed ones held; how many segments are `under_replicated`; how many nodes (`spare_nodes`, None where
        nothing is stored) may stop with every segment still written and read; the `replication` (`factor`,
        `write_quorum`) of new segments; the most copies that any segment shall have (`copies_needed`).

        A replica, or a verified copy, counts where its node is in `alive` and still has the disk.
        """

    def stop_impact(self, node: int, *, alive: Sequence[int], current: Sequence[int]) -> dict[str, Any]:
        """Tells what would lack its quorum if a node stopped and the others of `alive` were those that serve.

        Replicas of open segments count on the nodes of `current`: they have all that was acknowledged.

        Gives the numbers of segments `open_without_quorum`, `sealed_without_copy` and `led`; `topics`: some of theirs.
        """

    def upkeep(self, present: Present) -> dict[str, Any]:
        """Gives `changes` of copies to propose now as `set_copies`, the most urgent first, and the `progress`.

        It counts sealed segments `under_replicated`, of these `without_copy`, and `lost`; copies `moving`, `damaged`.
        """

    def past_retention(self, limit: int) -> list[dict[str, Any]]:
        """Lists up to `limit` partitions that have something to let go by their retention, to propose as `expire`."""

    def segments(
        self, alive: Sequence[int], *, topic: str | None, under_replicated: bool, limit: int
    ) -> list[dict[str, Any]]:
        """Lists segments in order, a dict for each: of one `organisation/name`, or that lack copies, if wanted."""

    def check(self, envelope: bytes) -> None:
        """Raises `Rejected` where the command must not be proposed.

        This version may not understand it: `Malformed`, `UnsupportedVersion`, `UnsupportedLevel`; or a member may not:
        `LevelNotReached`.
        """

    def reachable_level(self) -> int | None:
        """The level of commands that all members know, if it is above the cluster's."""

    def knows_placement(self) -> bool:
        """Whether commands about the placement of topics, and registrations with named listeners, may be proposed."""

    def knows_disk_sizes(self) -> bool:
        """Whether renewals of leases may say how large a node's disk is."""

    def knows_zones(self) -> bool:
        """Whether registrations may say in which zone a node is."""

    def organisations(self) -> list[dict[str, Any]]:
        """The organisations by name, a dict for each: `name`, `limits`, `topics`, `partitions`, `version`."""

    def compare_topics(self, wanted_json: str, node_json: str) -> list[dict[str, Any]]:
        """Compares topics as they are wanted (JSON, a list of `org`, `name`, `config`) with what there is, in order.

        `refused` says why no topic can have those settings; `found`, or None, is the topic: `topic` (its UUID),
        `partitions`, `version`, `factor`, `write_quorum`, `differences`, `settings`, `leaders`, `sealed_bytes`.
        `node_json` are options of the node: `segment_{entries,bytes,age_ms}_max`, `fsync`. Raises `ValueError`.
        """

    def lost_topics(self, remains_json: str) -> list[dict[str, Any]]:
        """Lists topics that this state does not name, put together from the `DataPlane.remains` of all disks, as JSON.

        Gives for each `topic`, `facts` and `partitions` (`index`, `first`, `begins`, `ends`, `bytes`, `ambiguity`).
        """

    def recover_topic(self, lost_json: str, name: str | None, present: Present) -> dict[str, Any]:
        """The command that names one of `lost_topics` (as JSON) again, under *name* if one is given.

        Raises `ValueError` that says why it cannot be: no name is known, or nobody can say which segment is the first.
        """

    def plan(self, request_json: str, present: Present) -> Plan:
        """Plans how a request of the data plane, as `DataPlane.poll_events` gives it, is carried out from this state.

        Raises `ValueError` for a text that is no request.
        """

@final
class Plan:
    """The way in which a request of the data plane is carried out.

    It is a barrier, or the proposal of `envelope`; `answer` then gives what `DataPlane.complete` takes.
    """

    @property
    def is_barrier(self) -> bool:
        """Whether it is carried out by waiting until this node knows all that is committed."""

    def envelope(self, at_ms: int) -> bytes | None:
        """The command to propose, under a fresh id, at that time; `None` for a barrier."""

    def answer(self, rejected_json: str | None = None) -> str | None:
        """The answer to the request, once the command was applied, or rejected with these facts as JSON.

        `None` means that the state had moved on: plan it anew. Raises `ValueError` for a text that is no rejection.
        """

    def response(self, rejected_json: str | None = None) -> Any | None:
        """The same for a caller that is no data plane: the response in the shape of its JSON.

        `None` means that the state had moved on: plan it anew. Raises `Rejected`, `RetryableError` where the same
        request may be taken a moment later, `ValueError` for a text that is no rejection.
        """

    @staticmethod
    def unavailable(why: str) -> str:
        """The answer to a request that was not carried out, as far as is known; it may be asked again."""

@final
class Presence:
    """The renewals of leases that this process has seen, on its CLOCK_BOOTTIME: they tell who is alive. Thread-safe."""

    def __new__(cls, lease_ms: int) -> Presence:
        """Starts with nothing seen. A node counts as alive for `lease_ms` after its last renewal was seen."""

    def observe(self, metadata: Metadata, now_ns: int) -> None:
        """Takes in a newer state. A node that was never seen before counts as seen now."""

    def look(self, metadata: Metadata, now_ns: int) -> Present:
        """Tells who is there; `now_ns` must not be before the last `observe`."""

@final
class Present:
    """The nodes that were there at one moment, for those methods of `Metadata` that choose nodes."""

    @property
    def alive(self) -> list[int]:
        """Ids, in order, of the nodes whose lease had not lapsed."""

    @property
    def staying(self) -> list[int]:
        """Ids of these nodes and of those that had not been silent for longer than a lease and `copies.grace_ms`."""

@final
class OpenProgress:
    """How far the open of a broker's store is, for whoever waits for it."""

    def __new__(cls) -> OpenProgress: ...
    def percent(self) -> int | None:
        """How much is done, in percent; `None` before it is known how much there is to do."""

@final
class DataPlane:
    """The broker inside this process: its threads never take the interpreter lock."""

    WIRE_VERSIONS: ClassVar[tuple[int, int]]  # between brokers: oldest and newest

    def __new__(cls, config_json: str, progress: OpenProgress | None = None) -> DataPlane:
        """Opens the store, binds the listeners (port 0 = chosen), starts the threads.

        Meanwhile *progress* tells how far the open of the store is.

        Raises `ValueError` for a config that cannot be used, `AddressInUse`, `Locked`, `UnsupportedFormat`,
        `CorruptionError`, `OSError`.
        """

    def addresses(self) -> dict[str, str]:
        """`host:port` of the listeners `text`, `grpc`, `peer` and further ones by name (`grpc/acme`), as bound.

        Empty for those that the host tells clients of later.
        """

    def identity(self) -> dict[str, Any]:
        """`cluster_id`, `node_id`, `disk` and `process`."""

    def store_report(self) -> dict[str, Any]:
        """Tells what opening the store found: `backend` in use, why another one was `refused` (or `None`), how what is
        synced is written (`synced_writes`: `direct` or `cached`), why it is `cached` (or `None`), `opened`.
        """

    def publish(self, metadata: Metadata) -> None:
        """Takes the state as it is now, and wakes the requests that wait for a change."""

    def set_raft_status(self, status_json: str) -> None:
        """Sets what Raft says of itself, a JSON object, for `METRICS`."""

    def poll_events(self, max: int, timeout_ms: int) -> list[tuple[int, str]]:  # noqa: A002 - at most so many
        """Pulls up to `max` requests to the metadata, in order, as (id, JSON); waits up to `timeout_ms` for the first.

        `Metadata.plan` takes them. The interpreter lock is released, and signals are seen, while it waits. Empty at
        once after `stop`.
        """

    def complete(self, event_id: int, answer_json: str) -> None:
        """Answers a request with what `Plan.answer` gave.

        Publish the state that the answer is about first. Raises `ValueError` for an answer that is not understood;
        whoever waited for it is refused then.
        """

    def configure(self, config_json: str) -> None:
        """Changes options while it runs: `segment_{entries,bytes,age_ms}_max`, `monitor_check_ms`."""

    def test_control(self, control: str) -> None:
        """Makes something happen for a test; refused unless the config has `test_controls`.

        `revoke_leases`, `sync_leases`, `fail_reads` or `allow_reads`. Raises `ValueError`.
        """

    def copies_not_whole(self) -> int:
        """Counts the copies on this disk that have lacked something for longer than `lacking_ms_max`.

        Copies of open segments count, too.
        """

    def open_behind(self, timeout_ms: int) -> int | None:
        """Counts the unsealed segments that this node stores without all that was acknowledged before the call.

        Segments whose end is being decided, or whose leader does not answer in time, count, too. `None` while it stops.
        """

    def hand_over(self, limit_ms: int) -> dict[str, Any] | None:
        """Has other nodes lead what this one leads, as it is about to stop; takes `limit_ms` at most.

        Tells `handed_over` and `staying`, numbers of segments, and `why` some stay, or `None`. `None` in place of all
        that once it is stopped; `stop` ends it. The broker leads nothing new afterwards.
        """

    def remains(self) -> list[dict[str, Any]]:
        """Tells what lies on this disk of topics that the metadata neither name nor call deleted.

        Each has `replica` (`node`, `disk`), `topic`, `facts` (`org`, `name`, `internal`, `partitions`; or None)
        and `segments`: what `Metadata.lost_topics` takes of all disks.
        """

    def prometheus(self) -> str:
        """All metrics in Prometheus's text format."""

    def __repr__(self) -> str: ...
    def stop(self, grace_ms: int) -> None:
        """Lets requests in flight end for at most `grace_ms`, then syncs and closes. A second call does nothing."""

@final
class Front:
    """The ports of servers of this process that know no limits: accepts for them and passes on over UNIX sockets.

    Each connection has to send its header in time, and one more than the caps allow is refused. A port of `http1`
    answers a few of those all the same, briefly: whether the process lives can always be asked.
    """

    def __new__(cls, config_json: str) -> Front:
        """Listens. `ports` has by name `address`, `socket` (a path) and `protocol`: `http1` or `http2`.

        `connections_max`, `connections_per_address_max` and `patience` are those of the data plane. Raises `ValueError`
        for a config that cannot be used, `AddressInUse`, `OSError`.
        """

    def addresses(self) -> dict[str, str]:
        """`host:port` of each port, as bound."""

    def stop(self) -> None:
        """Closes the ports and all their connections. A second call does nothing."""

@final
class Walrus:
    """The storage engine inside this process: a store whose logs are topics. Threads share it.

    A topic is made by its first append, or by `make_topic`; offsets count its entries from 0. What can only be said of
    one that is there raises `RejectedError` with the reason `UnknownTopic`.
    """

    @staticmethod
    def open(
        directory: str | PathLike[str],
        *,
        key: str | None = None,
        backend: str = "auto",
        fsync: str = "each",
        persist_every: int | None = None,
        block_bytes: int | None = None,
        blocks_per_file: int | None = None,
    ) -> Walrus:
        """Opens the store of a directory, which is made if it is not there; with `key` that of a namespace below it.

        `backend` is auto, mmap, direct or io_uring. `fsync` is each (an append that returned is durable), never, or
        `<n>ms`. With `persist_every` the place where a read begins is stored once in so many entries, and the end at
        close: at most that many, or those of the last read, come again after a crash; that holds for one reader of a
        cursor at a time, since each read says that all that was given before is done. Without, each is given once. The
        sizes are those of a new store (10 MiB, 100). Raises `Locked`, `UnsupportedFormat`, `CorruptionError`,
        `RejectedError` for wrong options, `OSError`.
        """

    @property
    def backend(self) -> tuple[str, str | None]:
        """The backend in use, and why another one that was asked for is not."""

    @property
    def synced_writes(self) -> tuple[str, str | None]:
        """How commits write what they sync, `direct` or `cached`, and why not `direct`."""

    def append(self, topic: str, data: ReadableBuffer) -> int:
        """Appends an entry, as durably as `fsync` says, and gives its offset."""

    def append_many(self, topic: str, entries: Sequence[ReadableBuffer]) -> range:
        """Appends up to 2,000 entries: all of them are there, or none. Gives their offsets."""

    def append_packed(self, topic: str, data: ReadableBuffer, positions: ReadableBuffer) -> range:
        """Appends entries of one buffer as `append_many` does: entry i from `positions[i]` to `positions[i + 1]`.

        `positions` are integers of 64 or 32 bits, one more than entries, as Arrow's offsets are: of an
        `array.array("q")`, a NumPy array; plain bytes, as those of a `pyarrow.Buffer`, are int64. Items of another kind
        raise `TypeError`. `bytes` are not copied before they are in the batch.
        """

    def submit(
        self, topic: str, entries: Sequence[ReadableBuffer], completions: Completions
    ) -> tuple[range, int | None]:
        """Appends as `append_many` does, without waiting: `completions` tells the id when done; `None` if it is."""

    def submit_packed(
        self, topic: str, data: ReadableBuffer, positions: ReadableBuffer, completions: Completions
    ) -> tuple[range, int | None]:
        """Appends as `append_packed` does, without waiting; see `submit`."""

    def append_once(
        self, topic: str, entries: Sequence[ReadableBuffer], *, producer: int, epoch: int = 0, sequence: int
    ) -> tuple[range, bool]:
        """Appends entries that a producer may send again when it does not know whether they were stored.

        What it sends again with the same `sequence`, as one of its last five calls, is not stored again: the offsets
        are those of the first time, and True says so; also after a restart. `producer` is its number in this topic, and
        `sequence` how many entries of this `epoch` it has sent there before. A higher epoch begins at 0, and locks out
        the lower ones. Raises `RejectedError` with the reason `OutOfOrderSequence` (the fact `expected` says what comes
        next), `ProducerFenced`, or `TooLarge` for more than one batch holds; `RetryableError` (`TooManyProducers`).
        """

    def submit_once(
        self,
        topic: str,
        entries: Sequence[ReadableBuffer],
        completions: Completions,
        *,
        producer: int,
        epoch: int = 0,
        sequence: int,
    ) -> tuple[range, bool, int | None]:
        """Appends as `append_once` does, without waiting; see `submit`."""

    def expect(self, topic: str, offset: int | None, completions: Completions) -> int | None:
        """Has `completions` say when the topic has an entry at an offset, or for its default cursor (`None`).

        A topic that is not there is waited for, and not made. See `submit`.
        """

    def read_next(self, topic: str, *, checkpoint: bool = True) -> tuple[int, bytes] | None:
        """Reads offset and data of the next entry of the topic's default cursor; see `Cursor.read_next`."""

    def read_batch(
        self, topic: str, bytes_max: int = 1048576, *, checkpoint: bool = True, start_offset: int | None = None
    ) -> EntryBatch:
        """Reads the next entries of the default cursor, about `bytes_max` bytes; see `Cursor.read_batch`.

        With `start_offset` it reads from there on, and no cursor moves. Raises `OffsetOutOfRange`, `CorruptionError`.
        """

    def wait(self, topic: str, timeout: float) -> bool:
        """Waits up to `timeout` seconds until the default cursor has an entry to read; see `Cursor.wait`.

        A topic that is not there is waited for, too, and not made.
        """

    def cursor(self, topic: str, name: str) -> Cursor:
        """A cursor of a topic that exists. A new one stands at the topic's start."""

    def cursors(self, topic: str) -> dict[str, int]:
        """Names and places of the cursors that were stored."""

    def delete_cursor(self, topic: str, name: str) -> None:
        """Forgets a cursor, durably."""

    def topics(self) -> list[str]:
        """Names of the topics, sorted."""

    def make_topic(self, topic: str) -> None:
        """Makes a topic, durably, as its first append would; nothing changes if it is there."""

    def delete_topic(self, topic: str) -> bool:
        """Deletes a topic and its cursors, durably. False means that there was none."""

    def offsets(self, topic: str) -> range:
        """Offsets that can be read; empty where there is no topic."""

    def unread(self, topic: str) -> int:
        """Number of entries that the default cursor has not consumed."""

    def size_bytes(self, topic: str) -> int:
        """Bytes of the topic's batches on the disk."""

    def recovery(self) -> dict[str, Any]:
        """Tells what the open found, and what it cut, fenced, moved aside, moved back or made again.

        `clean`: the store was closed in order. `lost_something`: something below may have been promised. `torn_tails`:
        bytes cut from the end of logs, and the file that they are in now. `damaged`: ranges of offsets that cannot be
        read. `lost_end`: the journal ended before what it had promised (else `None`); `logs_found` are those that only
        their blocks knew, seals, trims, deletions and moves of cursors may be forgotten, and a cursor that must not
        give an entry twice raises `CorruptionError` with the reason `DoubtedCursor` until it is sought.
        `unknown_blocks`, `cut_files`, `unsynced_logs`, `moved_cursors`, `made_again`, `journal_cut_bytes`: as
        `walrus log inspect` has them in JSON.
        """

    def mark_clean(self, topic: str) -> None:
        """Calls the topic clean until its next append, durably."""

    def mark_dirty(self, topic: str) -> None:
        """Calls the topic dirty until it is called clean, durably."""

    def is_clean(self, topic: str) -> bool:
        """Whether nothing was appended since the topic was called clean. One that is not there is clean."""

    def set_retention(
        self,
        topic: str,
        *,
        age_s: int | None = None,
        bytes: int | None = None,  # noqa: A002 - as the rule is called
        consumed_by: Sequence[str] | None = None,
        pinned_by: Sequence[str] | None = None,
    ) -> None:
        """Says what the topic forgets in the background, until the store is closed.

        Whole blocks go: those older than `age_s` seconds, the oldest while `bytes` stay, those that all cursors of
        `consumed_by` have passed; but nothing that a cursor of `pinned_by` has not passed.
        """

    def append_keyed(self, topic: str, key: ReadableBuffer, data: ReadableBuffer | None) -> int:
        """Appends an entry with a key: a compaction keeps the last of each. Data `None` says that the key is gone."""

    def compact(self, topic: str, *, tombstone_delay_s: float = 86400.0) -> tuple[int, int]:
        """Keeps the last entry of each key, in blocks that are filled; offsets stay, appends and reads go on meanwhile.

        Entries without a key stay. One that says that its key is gone goes when it is so old, unless damage or a batch
        that cannot be read lies in front of it, where an older entry of the key may be. Compressed batches are opened,
        and stay compressed. Gives how many entries went and how many bytes of the disk with them. Raises
        `RetryableError` where a disk is full: what was done so far stays.
        """

    def trim(self, topic: str, before: int) -> tuple[int, str]:
        """Forgets entries below an offset, durably. Gives where the topic begins now, and why there.

        The reason is trim, nothing (it began there), or `held by` and the name of a cursor that is pinned.
        """

    def close(self) -> None:
        """Syncs and closes; what comes later is refused. A second call does nothing."""

    def __repr__(self) -> str: ...
    def __enter__(self) -> Walrus: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Cursor:
    """A named, durable place in a topic. Handles of one name share it."""

    def __repr__(self) -> str: ...
    @property
    def name(self) -> str:
        """Name of the cursor, as it was asked for."""

    @property
    def position(self) -> int:
        """Offset of the next entry."""

    @property
    def unread(self) -> int:
        """Number of entries from there on."""

    def read_next(self, *, checkpoint: bool = True) -> tuple[int, bytes] | None:
        """Reads offset and data of the next entry; `None` at the end.

        With `checkpoint` the cursor moves behind it, durably, before it is returned: two readers never get the same
        entry. Without, it stays.
        """

    def read_batch(self, bytes_max: int = 1048576, *, checkpoint: bool = True) -> EntryBatch:
        """Reads the next entries, about `bytes_max` bytes of them: at least one, if there is one, at most 2,000."""

    def seek(self, offset: int) -> None:
        """Moves the cursor, durably. Raises `OffsetOutOfRange`."""

    def persist(self) -> None:
        """Makes the place durable now, where `persist_every` would wait."""

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for an entry to read; signals are seen meanwhile.

        False: none came, or none will. Raises `RejectedError` when the topic is deleted or the store closed.
        """

@final
class EntryBatch:
    """Entries that were read, in one buffer: `memoryview(batch)` has their data back to back and copies nothing.

    `batch[i]` and iteration give offset and data as `read_next` does, copied.
    """

    @property
    def offsets(self) -> Buffer:
        """Offsets of the entries, int64."""

    @property
    def timestamps_ms(self) -> Buffer:
        """Times at which the entries were appended, int64, since the epoch."""

    @property
    def entry_keys(self) -> list[bytes | None]:
        """Keys of the entries, copied; `None` for an entry without one."""

    @property
    def positions(self) -> Buffer:
        """Positions, int64, one more than entries: entry i is `memoryview(batch)[positions[i]:positions[i + 1]]`."""

    @property
    def next_offset(self) -> int | None:
        """Offset behind the last entry; `None` for an empty batch."""

    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[int, bytes]: ...
    def __iter__(self) -> Iterator[tuple[int, bytes]]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Completions:
    """The waits of an event loop, used by `walrus_core.aio.AsyncWalrus`. Threads of the engine never take the GIL."""

    def __new__(cls) -> Completions: ...
    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that made it: every call is refused then."""

    def fileno(self) -> int:
        """File descriptor that can be read from when there is something to take."""

    def forget(self, id: int) -> None:  # noqa: A002 - as `submit` and `expect` gave it
        """Ends a wait: `take` does not tell of it, and it keeps nothing alive."""

    def __repr__(self) -> str: ...
    def take(self) -> list[tuple[int, Exception | None]]:
        """Gives the ids that are done since the last call, and why they failed."""

@final
class Buffer:
    """Read-only bytes; `memoryview(buffer)` and `pyarrow.py_buffer(buffer)` copy nothing and keep it alive."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class BinaryColumn:
    """A column of bytes in the layout of Arrow's `binary`."""

    @property
    def validity(self) -> Buffer | None:
        """Validity: one bit per row, lowest first; `None` when no row is absent."""

    @property
    def null_count(self) -> int:
        """Number of rows that are absent."""

    @property
    def offsets(self) -> Buffer:
        """Positions in `data`, int32, one more than rows: row i is `data[offsets[i]:offsets[i + 1]]`."""

    @property
    def data(self) -> Buffer:
        """All values, back to back; less than 2 GiB."""

@final
class HeadersColumn:
    """A column in the layout of Arrow's `list<struct<key: string, value: binary>>`."""

    @property
    def count(self) -> int:
        """Number of headers of all rows."""

    @property
    def offsets(self) -> Buffer:
        """Places of headers, int32, one more than rows: row i has the headers `offsets[i]` to `offsets[i + 1] - 1`."""

    @property
    def key(self) -> BinaryColumn:
        """Keys of the headers, UTF-8; none is absent."""

    @property
    def value(self) -> BinaryColumn:
        """Values of the headers; absent for a header without one."""

@final
class Columns:
    """Decoded records, column by column, all with `rows` rows."""

    @property
    def rows(self) -> int:
        """Number of records."""

    @property
    def offset(self) -> Buffer:
        """Offsets of the records, int64."""

    @property
    def timestamp_us(self) -> Buffer:
        """Times of the records, int64, microseconds since the epoch."""

    @property
    def timestamp_type(self) -> Buffer:
        """Kinds of these times, int32: 0 set by the producer (CreateTime), 1 by the broker (LogAppendTime)."""

    @property
    def key(self) -> BinaryColumn:
        """Keys of the records; absent for a record without one."""

    @property
    def value(self) -> BinaryColumn:
        """Values of the records; absent for a record without one, a tombstone."""

    @property
    def headers(self) -> HeadersColumn | None:
        """Headers of the records, if they were asked for."""

    @property
    def position(self) -> int:
        """Position in `data` from which to go on."""

    @property
    def next_offset(self) -> int:
        """The `start` with which to go on."""

def decode_batches(
    data: bytes | memoryview,
    *,
    position: int = 0,
    start: int = 0,
    end: int | None = None,
    bytes_max: int = 2147483647,
    headers: bool = False,
) -> Columns:
    """Decodes Kafka RecordBatches v2 that lie back to back into columns that Arrow can take as they are.

    Takes the records `start <= offset < end` from `position` on, checks every checksum, and stops in front of the
    record that would bring keys, values and headers over `bytes_max` (one record is always taken). To go on, call it
    again with `position` and `next_offset` of the answer; no rows means that nothing is left. Offsets must grow; what
    comes a second time (where two answers of a read were joined) is left out.
    Compressed batches (gzip, snappy, lz4, zstd) are opened, up to 256 MiB each. Raises `CorruptionError`, and
    `InvalidBatch` where that is not possible.
    """

class BatchDecoder:
    """Decodes pages of Kafka RecordBatches v2 into columns, as they come and where they lie: `decode_batches` for more
    than fits into one piece of memory. Safe to use from many threads.
    """

    def __new__(
        cls, *, start: int = 0, end: int | None = None, bytes_max: int = 2147483647, headers: bool = False
    ) -> BatchDecoder:
        """Takes the records `start <= offset < end`; `bytes_max` bounds each answer of `take`."""

    def add(self, page: bytes | memoryview) -> None:
        """Adds a page, which begins with a whole batch. It is kept, not copied, until it is decoded."""

    @property
    def waiting(self) -> int:
        """The bytes of pages that are not decoded yet."""

    def take(self) -> Columns:
        """Decodes what is there, up to `bytes_max`; no rows where nothing is left. `position` says nothing.

        Raises what `decode_batches` raises, and is of no use from then on.
        """

def encode_batch(
    values: Sequence[bytes | None],
    *,
    timestamps_ms: Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
    producer_id: int | None = None,
    producer_epoch: int = 0,
    base_sequence: int = 0,
) -> bytes:
    """Builds an uncompressed Kafka RecordBatch v2 with base offset 0.

    All sequences are of one length, at least 1. Raises `InvalidBatch` where the records do not fit into one batch.
    """

def init_logging(directives: str) -> bool:
    """Sends Rust's log lines to standard error, as far as the directives let them (`info`, the syntax of `RUST_LOG`).

    Gives False where logging was set up before: then nothing changes. Raises `ValueError` for wrong directives.
    """

def set_log_filter(directives: str) -> bool:
    """Changes what `init_logging` lets through. False where logging was not set up by it. Raises `ValueError`."""

def inspect_store(directory: str | PathLike[str]) -> dict[str, Any]:
    """Tells what a store has that nobody has open: `logs`, what an open would find, `damaged`, and all as a `table`.

    Changes nothing. Raises `Locked`, `CorruptionError` where the store does not open, `OSError`.
    """

def verify_store(directory: str | PathLike[str]) -> dict[str, Any]:
    """Inspects a store as `inspect_store` does, and reads every batch; `checked` has their number."""

def repair_store(directory: str | PathLike[str]) -> dict[str, Any]:
    """Makes a store open again; gives what `inspect_store` then gives, and what was done to the `journal`.

    Moves aside what cannot be read, deletes nothing, makes a lost or damaged journal again from what is left of it and
    from the headers of blocks. Raises `Locked`, `CorruptionError` if the MANIFEST is damaged, `OSError`.
    """
