"""Whether a volume is lost with its node is asked of Kubernetes once more, right before its disk is given up."""

from __future__ import annotations

import asyncio

from walrus_operator.act.stopped import Stopped
from walrus_operator.kube.api import KubeApi
from walrus_operator.objects import CLAIM, NODE, POD, VOLUME, Ref
from walrus_operator.observe.machines import Machine, Volume
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, GiveUpDisk, Wait


class LostVolumes:
    """Looks at nodes and volumes, and changes none."""

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube

    async def check(self, action: GiveUpDisk, snapshot: Snapshot) -> None:
        """The pod does not serve, its disk is the one that was looked at, and no node reaches it. Raises `Stopped`."""
        pod, volume, machines = await asyncio.gather(
            self._kube.get(Ref(POD.name, snapshot.cluster.key.namespace, action.pod)),
            self._volume(action, snapshot),
            self._kube.list(NODE, None),
        )
        serves = pod is not None and Pod.parse(pod).ready
        if serves or volume is None or volume.reached_from(map(Machine.parse, machines)):
            detail = f"{action.pod}, its volume or its node are other ones since the last look: {action.disk} stays"
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, detail))

    async def _volume(self, action: GiveUpDisk, snapshot: Snapshot) -> Volume | None:
        """The volume of the pod's claim, if it is still the same; a folder of a node is what it was."""
        named = action.volume.name if action.volume is not None else ""
        if not named:
            return action.volume
        namespace, names = snapshot.cluster.key.namespace, snapshot.cluster.names
        claim = await self._kube.get(Ref(CLAIM.name, namespace, names.claim(action.pod)))
        found = await self._kube.get(Ref(VOLUME.name, "", named))
        is_its = claim is not None and claim["spec"].get("volumeName") == named
        return Volume.parse(found) if is_its and found is not None else None
