"""The program `walrus-node` as its users run it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from waiting import wait_until

# Tests roll segments as fast as they fill them.
ROLLING = ("--segment-age-min", "0")
PORTS = ("raft", "client", "grpc", "peer", "http", "admin", "kafka")


class NodeProcess:
    """One node on ports that stay the same over restarts; its log is in one file."""

    def __init__(self, directory: Path, ports: dict[str, int], *flags: str) -> None:
        self.data = directory / "data"
        self.log = directory / "node.log"
        self.ports = ports
        self.flags = flags
        self.environment: dict[str, str] = {}
        self.cwd: Path | None = None
        self.behind: tuple[str, ...] = ()
        """A command that runs the program in its place."""
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def raft_address(self) -> str:
        return f"127.0.0.1:{self.ports['raft']}"

    def start(self, *more: str) -> "NodeProcess":
        ports = [word for name, port in self.ports.items() for word in (f"--{name}-port", str(port))]
        flags = ("--data-dir", str(self.data), *ports, *ROLLING, *self.flags, *more)
        command = [*self.behind, sys.executable, "-m", "walrus_node", *flags]
        with self.log.open("ab") as log:
            environment = {**os.environ, "WALRUS_DATA_DIR": "", **self.environment}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.cwd)
        return self

    def wait_ready(self) -> dict[str, Any]:
        wait_until("it is ready", lambda: self.alive() and self.get("/readyz")[0] == 200)
        return self.status()

    def alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return True

    def get(self, path: str) -> tuple[int, str]:
        """Status code and body; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.get("/api/status")[1])
        return facts

    def exit_code(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stand_still(self) -> None:
        """The process does nothing any more until `go_on`: returns once none of its threads runs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")

        def stands() -> bool:
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
            return all(state == "T" for state in states)

        wait_until("it stands still", stands)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.exit_code()
