"""The operator as it is installed: its pod, its log, what it asked of the API server."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from harness.kube.kubectl import Kubectl, Object, helm, run
from harness.waiting import wait_until

RELEASE = "walrus-operator"
NAMESPACE = "walrus-system"
SELECTOR = "app.kubernetes.io/name=walrus-operator"
ON_CONTROL_PLANE = {  # where no fault of a worker reaches it
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"operator": "Exists"}],
}
AUDIT = ("docker", "exec", "walrus-control-plane", "cat", "/var/log/kubernetes/audit.log")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Installed:
    """A release of the chart walrus-operator that watches all namespaces."""

    chart: Path
    kubectl: Kubectl = field(default_factory=lambda: Kubectl(NAMESPACE))

    def install(self) -> None:
        helm(
            *("upgrade", "--install", RELEASE, str(self.chart), "--namespace", NAMESPACE, "--create-namespace"),
            "--take-ownership",  # of the definition, which may be of a release elsewhere
            *("--set", "watch.all=true", "--set-json", json.dumps(ON_CONTROL_PLANE), "--wait", "--timeout", "180s"),
        )

    def uninstall(self) -> None:
        helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "180s")

    def pod(self) -> Object:
        """The one pod that is not on its way out."""
        (pod,) = (pod for pod in self.kubectl.list("pods", SELECTOR) if "deletionTimestamp" not in pod["metadata"])
        return pod

    def kill(self) -> None:
        """Deletes the pod without a word of warning to it, and waits for another to be ready."""
        old = self.pod()["metadata"]["name"]
        self.kubectl("delete", "pod", old, "--grace-period=0", "--force")
        wait_until(
            lambda: not any(pod["metadata"]["name"] == old for pod in self.kubectl.list("pods", SELECTOR)),
            "the operator's pod to go",
            every_s=0.2,
        )
        self.kubectl("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s")

    def log(self) -> list[str]:
        return self.kubectl("logs", self.pod()["metadata"]["name"]).splitlines()

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
