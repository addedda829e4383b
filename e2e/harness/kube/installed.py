"""The operator as it is installed: its pod, its log, what it asked of the API server."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from harness.kube.kubectl import Kubectl, Object, helm, run
from harness.waiting import wait_until

RELEASE = "walrus-operator"
NAMESPACE = "walrus-system"
SELECTOR = "app.kubernetes.io/name=walrus-operator"
ON_CONTROL_PLANE = {  # where no fault of a worker reaches it
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"operator": "Exists"}],
}
CONTROL_PLANE = ("docker", "exec", "walrus-control-plane")
AUDIT = (*CONTROL_PLANE, "cat", "/var/log/kubernetes/audit.log")
KEPT = "/var/log/walrus-operator"
# A kubelet removes the logs of a container that is gone; a second name keeps each from its first moments on.
KEEP = (
    f"while sleep 0.5; do cp --link --parents --no-clobber /var/log/pods/{NAMESPACE}_{RELEASE}-*/*/*.log {KEPT}/; done"
)
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Installed:
    """A release of the chart walrus-operator that watches all namespaces, unless told otherwise."""

    chart: Path
    kubectl: Kubectl = field(default_factory=lambda: Kubectl(NAMESPACE))

    def install(self, *, watched: Sequence[str] = (), **values: object) -> None:
        """Installs it, or upgrades it to watch these namespaces besides its own; without any, all.

        *values* of the chart win over those of the tests: one operator, whose log is text.
        """
        watch = {"all": not watched, "namespaces": [*watched]}
        values = {**ON_CONTROL_PLANE, "replicas": 1, "logFormat": "text", "watch": watch, **values}
        helm(
            *("upgrade", "--install", RELEASE, str(self.chart), "--namespace", NAMESPACE, "--create-namespace"),
            "--take-ownership",  # the definition may belong to a release elsewhere
            *("--set-json", json.dumps(values), "--wait", "--timeout", "180s"),
        )

    def uninstall(self) -> None:
        helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "180s")

    def pods(self) -> list[Object]:
        """Those that are not on their way out."""
        return [pod for pod in self.kubectl.list("pods", SELECTOR) if "deletionTimestamp" not in pod["metadata"]]

    def pod(self) -> Object:
        """The one pod that is not on its way out."""
        (pod,) = self.pods()
        return pod

    def lease(self) -> Object:
        """The Lease, by which one of several operators works."""
        return self.kubectl.find("lease", RELEASE) or {"spec": {}}

    def holder(self) -> str:
        """The pod that holds the Lease; empty while nobody does."""
        return str(self.lease()["spec"].get("holderIdentity") or "")

    def kill(self) -> None:
        """Deletes the pod without a word of warning to it, and waits for another to be ready."""
        old = self.pod()["metadata"]["name"]
        self.kubectl("delete", "pod", old, "--grace-period=0", "--force")
        wait_until(
            "the operator's pod to go",
            lambda: not any(pod["metadata"]["name"] == old for pod in self.kubectl.list("pods", SELECTOR)),
            every_s=0.2,
        )
        self.kubectl("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s")

    def keep_logs(self) -> None:
        """From now on the log of each container stays, whatever becomes of its pod."""
        run(*CONTROL_PLANE, "mkdir", "--parents", KEPT)
        run("docker", "exec", "--detach", *CONTROL_PLANE[2:], "bash", "-c", KEEP)

    def logs(self) -> dict[str, list[str]]:
        """What each container of it has written so far, also those that have ended, by file."""
        said: dict[str, list[str]] = {}
        for line in run(*CONTROL_PLANE, "grep", "--recursive", "--with-filename", "", KEPT).splitlines():
            file, _, text = line.partition(":")
            said.setdefault(file, []).append(text)
        return said

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, as its Service gives it."""
        found = self.metrics(name).get(frozenset(labels.items()))
        if found is None:
            raise LookupError(f"{name}{labels} is no metric of the operator")
        return found

    def metrics(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The values of a metric by labels, as its Service gives them."""
        service = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}:8080/proxy/metrics"
        return {
            frozenset(sample.labels.items()): float(sample.value)
            for family in text_string_to_metric_families(self.kubectl("get", "--raw", service))
            for sample in family.samples
            if sample.name == name
        }

    def cpu_ticks(self) -> int:
        """How long its process has run so far, in hundredths of a second."""
        stat = self.kubectl.execute(self.pod()["metadata"]["name"], "cat", "/proc/1/stat")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return int(user) + int(system)

    def resident_kib(self) -> int:
        status = self.kubectl.execute(self.pod()["metadata"]["name"], "cat", "/proc/1/status")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def requests(self, *, of_pod: str | None = None) -> list[Object]:
        """What the operator, or one pod of it, asked for, as the API server's audit has it, oldest first."""
        user = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
        events = (json.loads(line) for line in run(*AUDIT).splitlines())
        return [
            event
            for event in events
            if event["user"]["username"] == user
            and of_pod in (None, *event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", ()))
        ]

    def writes(self) -> list[Object]:
        """The requests that may change something, but for its own Lease."""
        return [
            request
            for request in self.requests()
            if request["verb"] in WRITES and request["objectRef"]["resource"] != "leases"
        ]
