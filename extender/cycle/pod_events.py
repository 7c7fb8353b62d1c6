"""Events about pods and about their controllers, because people describe the Job, not its pods."""

from typing import Literal

from extender.api.objects import OwnerReference
from extender.api.reasons import Reason
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from extender.state.pods.facts import PodFacts


class PodEvents:
    """Records each event on the pod and on the controller that would recreate it.

    The recorder counts repeats of a reason on one object, so a controller that loses many pods at
    once gets one event for all.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder

    def tell(
        self,
        pod: PodView,
        reason: Reason,
        note: str,
        type: Literal["Normal", "Warning"] = "Warning",  # noqa: A002 (the field's name in the API)
        *,
        owner_note: str = "",
    ) -> None:
        """One event on the pod and one on its controller, the latter with `owner_note` if given."""
        self._recorder.record(pod_reference(pod), reason, note, type)
        maker = self._state.maker_of(pod)
        if maker is not None:
            said = owner_note or f"{pod.name}: {note}"
            self._recorder.record(owner_reference(maker, pod.namespace), reason, said, type)


def pod_reference(pod: PodView | PodFacts) -> ObjectRef:
    """The reference to the pod in an Event."""
    return ObjectRef("v1", "Pod", pod.name, pod.namespace, pod.uid)


def owner_reference(owner: OwnerReference, namespace: str) -> ObjectRef:
    """The reference in an Event to a controller of pods in `namespace`."""
    return ObjectRef(owner.api_version, owner.kind, owner.name, namespace, owner.uid)
