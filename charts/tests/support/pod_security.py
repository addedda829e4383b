"""The *restricted* level of Kubernetes' pod security standards, as a pure check of a pod's spec.

The rules: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")


def violations(spec: dict[str, Any]) -> list[str]:
    """What an admission of the level *restricted* would refuse, and a root file system that can be written."""
    found = [name for name in HOST_FIELDS if spec.get(name)]
    found += [
        f"volume {volume['name']}: {kind}"
        for volume in spec.get("volumes", [])
        for kind in volume.keys() - {"name"}
        if kind not in VOLUMES
    ]
    pod = spec.get("securityContext", {})
    for container in spec.get("initContainers", []) + spec["containers"]:
        found += [f"{container['name']}: {what}" for what in _of_container(container, pod)]
    return found


def _of_container(container: dict[str, Any], pod: dict[str, Any]) -> list[str]:
    own = container.get("securityContext", {})
    both = pod | own
    capabilities = own.get("capabilities", {})
    rules = {
        "privileged": not own.get("privileged", False),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities.drop": "ALL" in capabilities.get("drop", []),
        "capabilities.add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "runAsNonRoot": both.get("runAsNonRoot") is True,
        "runAsUser": both.get("runAsUser") != 0,
        "seccompProfile": both.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
        "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        "readOnlyRootFilesystem": own.get("readOnlyRootFilesystem") is True,
    }
    return [rule for rule, holds in rules.items() if not holds]
