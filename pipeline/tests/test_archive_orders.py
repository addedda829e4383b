"""Any order of what may happen to archives, told by a model of what Spark does with its checkpoint and its sink."""

import json
from contextlib import nullcontext

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyspark_walrus.binding import FILE, ArchiveRefusedError, bind, decide, look

OTHER = {"a": "b", "b": "a"}
MOMENTS = ("half bound", "bound", "planned", "written", "never")
names = st.sampled_from("ab")


class MemoryFolder:
    """A folder in memory: thousands of orders on a disk would take minutes."""

    def __init__(self, files=()):
        self.url = "memory"
        self.files = dict(files)

    def names(self, inside=""):
        places = [name.rpartition("/") for name in self.files]
        return sorted(name for place, _, name in places if place == inside)

    def read(self, name):
        return self.files.get(name)

    def write(self, name, text):
        self.files[name] = text

    def data_files(self):
        return []

    def move(self, name, to):
        self.files[to] = self.files.pop(name)

    def locked(self):
        return nullcontext()


class Archives(RuleBasedStateMachine):
    """Two folders: archives, or copies of each other. A file of the sink's list names the offsets that it covers."""

    def __init__(self):
        super().__init__()
        self.folders = {name: MemoryFolder() for name in OTHER}
        self.checkpoints = {name: MemoryFolder() for name in OTHER}
        self.kept = MemoryFolder()
        self.end = 0

    @initialize()
    def one_is_there_and_copied(self):
        self.archive("a", "orders", batches=2, killed="never")
        self.keep_the_checkpoint("a")
        self.copy("a")

    @rule(
        name=names,
        topic=st.sampled_from(["orders"] * 5 + ["bills"]),
        batches=st.integers(1, 2),
        killed=st.sampled_from([*MOMENTS, "never", "never"]),
    )
    def archive(self, name, topic, batches, killed):
        """Archives like Spark, and may be killed in the last micro-batch."""
        folder, state = self.folders[name], self.checkpoints[name]
        try:
            binding = decide(look(folder, state), cluster="c-1", topic=topic, topic_uuid=topic)
        except ArchiveRefusedError:
            return
        before = folder.read(FILE)
        bind(folder, state, binding)
        if killed == "half bound" and before is not None:
            folder.write(FILE, before)
            return
        for left in reversed(range(batches)):
            moment = killed if left == 0 else "never"
            found = look(folder, state)
            number = found.committed + 1
            if found.planned < number and moment not in ("half bound", "bound"):
                begin = json.loads(state.files[f"offsets/{number - 1}"])[1] if number else 0
                self.end += 10  # copies that go on at different times cover different offsets under one number
                state.write(f"offsets/{number}", json.dumps([begin, self.end]))
            if moment in ("written", "never") and found.archived < number:  # the sink passes over what it knows
                path = json.dumps({"path": f"month=2024-01/{topic}:{state.read(f'offsets/{number}')}"})
                folder.write(f"_spark_metadata/{number}", f"v1\n{path}")
            if moment == "never":
                state.write(f"commits/{number}", "")

    @rule(name=names)
    def copy(self, name):
        self.folders[OTHER[name]] = MemoryFolder(self.folders[name].files)
        self.checkpoints[OTHER[name]] = MemoryFolder(self.checkpoints[name].files)

    @rule(name=names)
    def copy_the_checkpoint(self, name):
        self.checkpoints[OTHER[name]] = MemoryFolder(self.checkpoints[name].files)

    @rule()
    def swap_the_checkpoints(self):
        self.checkpoints = {name: self.checkpoints[OTHER[name]] for name in OTHER}

    @rule(name=names)
    def keep_the_checkpoint(self, name):
        self.kept = MemoryFolder(self.checkpoints[name].files)

    @rule(name=names)
    def restore_the_kept_checkpoint(self, name):
        self.checkpoints[name] = MemoryFolder(self.kept.files)

    @rule(name=names)
    def delete_the_checkpoint(self, name):
        self.checkpoints[name] = MemoryFolder()

    @invariant()
    def each_offset_is_there_once(self):
        for folder in self.folders.values():
            numbers = sorted(map(int, folder.names("_spark_metadata")))
            assert numbers == list(range(len(numbers)))
            lines = [folder.files[f"_spark_metadata/{number}"].splitlines()[1] for number in numbers]
            covered = [json.loads(line)["path"].split("/")[1].partition(":") for line in lines]
            assert len({topic for topic, *_ in covered}) <= 1
            at = 0
            for _, _, offsets in covered:
                begin, end = json.loads(offsets)
                assert begin == at
                at = end


TestArchives = Archives.TestCase
TestArchives.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
