"""The driver of kcat, a program for the shell: what it prints becomes the lines of a driver."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from walrus_compat.drivers.common import Spec, Stop, main, record_of, tell, tell_read, tell_sent

DELIVERED = re.compile(r"Message delivered to partition \d+ \(offset (-?\d+)\)")
FAILED = re.compile(r"% (?:ERROR: )?(?:Delivery failed for message|Failed to produce message \(\d+ bytes\)): (.*)")
SHARED = re.compile(r"Group \S+ rebalanced \(memberid [^)]*\): (assigned|revoked): ?(.*)")


def _kcat(spec: Spec, *arguments: str, options: Sequence[str] = ()) -> "subprocess.Popen[str]":
    command = ["kcat", "-b", spec.bootstrap, *arguments]
    for option in options:
        command += ["-X", option]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, bufsize=1, **pipes)  # type: ignore[call-overload,no-any-return] # noqa: S603


def produce(spec: Spec, stop: Stop) -> None:
    """Send lines. Reports of deliveries come in the order of what was sent."""
    options = [f"acks={spec.acks}", f"enable.idempotence={'true' if spec.idempotent else 'false'}"]
    if spec.bytes_max:
        options.append(f"message.max.bytes={spec.bytes_max}")
    process = _kcat(spec, "-P", "-t", spec.topic, "-z", spec.codec, "-K", "\t", "-Z", "-vvv", options=options)
    assert process.stdin is not None, "it was asked for"
    assert process.stderr is not None, "it was asked for"
    watch = threading.Thread(target=_tell_reports, args=(process.stderr,))
    watch.start()
    for number in stop.numbers(spec):
        record = record_of(spec, number)
        try:
            process.stdin.write(f"{(record.key or b'').decode()}\t{(record.value or b'').decode()}\n")
        except BrokenPipeError:
            break
    with suppress(BrokenPipeError):
        process.stdin.close()
    watch.join()
    if process.wait() != 0 and not stop.is_set:
        sys.stderr.write(f"kcat ended with {process.returncode}\n")


def _tell_reports(lines: Sequence[str]) -> None:
    number = 0
    for line in lines:
        if found := DELIVERED.search(line):
            tell_sent(number, int(found[1]), None)
        elif found := FAILED.search(line):
            tell_sent(number, None, found[1])
        else:
            sys.stderr.write(line)
            if "terminating" in line:  # with what it has not sent yet; while it goes on, it only logs
                tell(error=line.strip().removeprefix("% "))
            continue
        number += 1


def consume(spec: Spec, stop: Stop) -> None:
    """Read partition 0 from a place on."""
    kind, number = spec.place
    place = {"earliest": "beginning", "latest": "end", "time": f"s@{number}"}.get(kind, str(number))
    count = ["-c", str(spec.count)] if spec.count else []
    process = _kcat(
        spec, "-C", "-t", spec.topic, "-p", "0", "-o", place, "-J", "-u", *count, options=["auto.offset.reset=earliest"]
    )
    if kind != "latest":
        tell(ready=True)
    _run(process, stop)


def member(spec: Spec, stop: Stop) -> None:
    """Share the partitions of a topic with the other members of a group; kcat commits by itself."""
    options = [f"session.timeout.ms={spec.session_ms}", "auto.commit.interval.ms=100", "auto.offset.reset=earliest"]
    if spec.instance:
        options.append(f"group.instance.id={spec.instance}")
    _run(_kcat(spec, "-G", spec.group, "-J", "-u", spec.topic, options=options), stop)


def _run(process: "subprocess.Popen[str]", stop: Stop) -> None:
    """Tell what kcat prints until it ends, which it does in order when it is terminated."""

    def end() -> None:
        stop.wait()
        process.terminate()

    def tell_state() -> None:
        assert process.stderr is not None, "it was asked for"
        for line in process.stderr:
            if found := SHARED.search(line):
                held = [int(each) for each in re.findall(r"\[(\d+)\]", found[2])] if found[1] == "assigned" else []
                tell(assigned=sorted(held))
            elif "Reached end of topic" in line:
                tell(ready=True)
            elif "ERROR" in line:
                tell(error=line.strip().removeprefix("% "))
            else:
                sys.stderr.write(line)

    threading.Thread(target=end, daemon=True).start()
    state = threading.Thread(target=tell_state)
    state.start()
    assert process.stdout is not None, "it was asked for"
    for line in process.stdout:
        read = json.loads(line)
        key, value = (None if text is None else text.encode() for text in (read.get("key"), read["payload"]))
        tell_read(read["offset"], key, value, [], read["ts"], read["partition"])
    state.join()


def topics(spec: Spec, _stop: Stop) -> None:
    """List all topics."""
    process = _kcat(spec, "-L", "-J")
    tell(topics=len(json.loads(process.communicate()[0])["topics"]))


def _version() -> str:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    found = re.search(r"Version (\S+)", told)
    return found[1] if found else "unknown"


if __name__ == "__main__":
    main({"kcat": _version()} if sys.argv[1] == "about" else {}, produce, consume, member, topics)
