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
        """The pod does not serve, its claim still has this volume, and no node reaches it. Raises `Stopped`."""
        namespace, names = snapshot.cluster.key.namespace, snapshot.cluster.names
        pod, claim, found, machines = await asyncio.gather(
            self._kube.get(Ref(POD.name, namespace, action.pod)),
            self._kube.get(Ref(CLAIM.name, namespace, names.claim(action.pod))),
            self._kube.get(Ref(VOLUME.name, "", action.volume)),
            self._kube.list(NODE, None),
        )
        serves = pod is not None and Pod.parse(pod).ready
        is_its = claim is not None and claim["spec"].get("volumeName") == action.volume
        volume = Volume.parse(found) if found is not None else None
        if serves or not is_its or volume is None or volume.reached_from(map(Machine.parse, machines)):
            detail = f"{action.pod}, its volume or its node are other ones since the last look: {action.disk} stays"
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, detail))
