"""What a node says about itself over HTTP: `/readyz` and `/api/status`."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from walrus_client.dev.ports import LOOPBACK


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node serves, and what it still misses; `answered` is False when nobody listens yet."""

    answered: bool
    ready: bool
    missing: tuple[str, ...] = ()


def readiness(http_port: int) -> Readiness:
    """Ask a node whether it is ready; never raises."""
    content = _get(http_port, "/readyz")
    if content is None:
        return Readiness(answered=False, ready=False)
    missing = content.get("missing") or ()
    return Readiness(answered=True, ready=content.get("ready") is True, missing=tuple(map(str, missing)))


def status(http_port: int) -> dict[str, Any] | None:
    """Return the node's own account of itself; None if it does not answer."""
    return _get(http_port, "/api/status")


def voter_count(http_port: int) -> int:
    """Return how many voters of the metadata the node knows; 0 if it does not answer."""
    raft = (status(http_port) or {}).get("raft") or {}
    return sum(member.get("voter") is True for member in raft.get("members", ()))


def _get(http_port: int, path: str) -> dict[str, Any] | None:
    request = urllib.request.Request(f"http://{LOOPBACK}:{http_port}{path}")
    try:
        with _OPENER.open(request, timeout=2) as answer:
            content = json.loads(answer.read())
    except urllib.error.HTTPError as refusal:  # not ready is a 503 with the same content
        try:
            content = json.loads(refusal.read())
        except (OSError, ValueError):
            return None
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


# A proxy of the environment has no way to our loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
