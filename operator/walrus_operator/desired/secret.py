"""The secret that the brokers of a cluster share: where it lies, and which pods mount it.

It is made once, of random bytes, and never rewritten: users change it, line by line, as the guide says. Its owner is
the cluster, with which it goes. Nothing on a disk depends on it, so brokers that come up on claims that were retained
share a new one.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from walrus_operator.desired import names as n
from walrus_operator.desired.manifest import Owner, object_of
from walrus_operator.objects import SECRET, Manifest

SECRET_BYTES = 32
"""How many random bytes a secret is made of."""
_VOLUME = "secret"
_FILE_MODE = 0o440
"""Root owns a mounted file; the broker reads it as the group of its pod."""


def shared_secret(owner: Owner, secret: str) -> Manifest:
    """The Secret with this line in it."""
    data = {n.SECRET_KEY: b64encode(f"{secret}\n".encode()).decode()}
    return object_of(owner, SECRET, owner.names.secret, type="Opaque", data=data)


def volume(name: str) -> Manifest:
    """The volume of a pod that mounts the Secret of this name."""
    return {"name": _VOLUME, "secret": {"secretName": name, "defaultMode": _FILE_MODE}}


def mount() -> Manifest:
    """Where the broker's container finds the volume."""
    return {"name": _VOLUME, "mountPath": n.SECRET_DIR, "readOnly": True}


def variable() -> Manifest:
    """The broker's option that names the file."""
    return {"name": "WALRUS_SECRET_FILE", "value": f"{n.SECRET_DIR}/{n.SECRET_KEY}"}


def is_mounted(pod: dict[str, Any]) -> bool:
    """Whether a pod, or the template of one, mounts the Secret, whichever release of the operator has made it."""
    return any(one.get("name") == _VOLUME for one in pod.get("spec", {}).get("volumes", ()))
