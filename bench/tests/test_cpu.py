"""Reading the CPU time of ourselves and of others."""

from walrus_bench.cpu import (
    CpuReading,
    Process,
    others_cores,
    parse_machine_ticks,
    parse_process,
    reader,
    tree_ticks,
)


def test_others_are_the_machine_without_our_tree_and_without_the_kernels_threads() -> None:
    before = CpuReading(at_s=100.0, machine_s=50.0, own_s=10.0, kernel_s=5.0)
    after = CpuReading(at_s=102.0, machine_s=53.5, own_s=12.5, kernel_s=5.5)
    assert others_cores(before, after) == 0.25


def test_rounding_of_ticks_never_makes_others_negative() -> None:
    before = CpuReading(at_s=0.0, machine_s=0.0, own_s=0.0, kernel_s=0.0)
    after = CpuReading(at_s=1.0, machine_s=0.99, own_s=1.0, kernel_s=0.0)
    assert others_cores(before, after) == 0.0
    assert others_cores(after, after) == 0.0


def test_a_process_is_read_although_its_name_looks_like_more_fields() -> None:
    fields = " ".join(str(number) for number in range(5, 14))
    stat = f"42 (a) b (c) S 7 {fields} 100 20 3 4 20 0 1"
    assert parse_process(stat) == Process(pid=42, parent=7, ticks=127)


def test_a_tree_is_its_roots_and_everything_below_them() -> None:
    processes = [
        Process(pid=1, parent=0, ticks=1),
        Process(pid=10, parent=1, ticks=10),
        Process(pid=11, parent=10, ticks=100),
        Process(pid=12, parent=11, ticks=1000),
        Process(pid=20, parent=1, ticks=10000),
    ]
    assert tree_ticks(processes, frozenset((10,))) == 1110
    assert tree_ticks(processes, frozenset((11, 20))) == 11100


def test_the_machines_ticks_leave_interrupts_and_idle_time_out() -> None:
    assert parse_machine_ticks("cpu  10 2 30 4000 50 6 7 8 0 0\ncpu0 1 1 1 1\n") == 42


def test_our_own_work_is_not_taken_for_that_of_others() -> None:
    read = reader()
    before = read()
    while read().own_s - before.own_s < 0.3:
        sum(range(10_000))
    after = read()
    assert after.own_s - before.own_s >= 0.3
    assert after.machine_s >= before.machine_s
