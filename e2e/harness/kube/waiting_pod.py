"""A pod that waits for programs to be run in it, on the control plane, where no fault of a worker reaches it."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.kube.kubectl import Object


def waiting_pod(
    name: str, image: str, container: Mapping[str, Any] | None = None, volumes: Sequence[Object] = ()
) -> Object:
    """The manifest of the pod, whose one container has these fields as well."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "waiting",
                    "image": image,
                    "command": ["sleep", "infinity"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    **(container or {}),
                }
            ],
            "volumes": [*volumes],
        },
    }
