"""Where kube-scheduler did not bind a pod as planned, and how long Ballast waits to try again.

Stored in an annotation of the pod, so that a new leader knows it. The wait on a node doubles with
each refusal there; from the second refusal on, the pod as a whole waits too.
"""

import re
from typing import Final

from msgspec import Struct

from extender.api.objects import Pod
from extender.api.reasons import Reason, sentence

#: From this many refusals on, nothing is evicted for the pod's workload.
DOUBTFUL_FROM: Final = 2
#: Nodes remembered; the one refused longest ago is forgotten first.
MAX_NODES: Final = 8
#: Characters kept of kube-scheduler's message.
_WHY_CHARS: Final = 300
#: Prefixes of refused bindings that are about the card of a share (`extender.ledger.seating`).
_NO_SHARE: Final = tuple(
    sentence(reason) for reason in (Reason.CARDS_BUSY, Reason.CLAIMS_NOT_MET, Reason.CARD_UNHEALTHY)
)
#: The longest wait, as a multiple of the first.
_MOST_DOUBLED: Final = 64

_NUMBER: Final = r"(?:0|[1-9][0-9]{0,11})"
_TEXT: Final = re.compile(
    rf"({_NUMBER}) ({_NUMBER})((?: [a-z0-9][-a-z0-9.]{{0,252}}={_NUMBER}:{_NUMBER})*)"
    r"(?: \| ([^\n]*))?",
    re.ASCII,
)


class RefusedNode(Struct, frozen=True, gc=False):
    """A node that refused the pod `count` times; it is tried again from `until` (unix s)."""

    name: str
    count: int
    until: int


class Refusals(Struct, frozen=True, gc=False):
    """All refusals of a pod: how many, until when it is not planned, and on which nodes.

    `why` is kube-scheduler's last message.
    """

    count: int = 0
    until: int = 0
    nodes: tuple[RefusedNode, ...] = ()
    why: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Whether the pod was refused so often that nothing is evicted for it."""
        return self.count >= DOUBTFUL_FROM

    def after(self, node: str, now_s: int, wait_s: int, why: str = "") -> "Refusals":
        """These refusals and one more, on `node`; `wait_s` is the wait after a first refusal."""
        known = next((each for each in self.nodes if each.name == node), None)
        n_here = known.count + 1 if known else 1
        here = RefusedNode(node, n_here, now_s + _wait(wait_s, n_here))
        others = [each for each in self.nodes if each.name != node]
        until = now_s + _wait(wait_s, self.count) if self.count else now_s
        nodes = (*others[-(MAX_NODES - 1) :], here)
        return Refusals(self.count + 1, until, nodes, " ".join(why.split())[:_WHY_CHARS])

    def barred(self, now_s: int) -> tuple[str, ...]:
        """The nodes that may not be tried at `now_s`, by name."""
        return tuple(sorted(each.name for each in self.nodes if each.until > now_s))


class Denial(Struct, frozen=True, gc=False):
    """The API server refused the pod's release `count` times; it is not planned before `until`.

    Only the current leader knows it: a pod that can't be patched can carry no annotation for it.
    """

    count: int
    until: int
    message: str


def deny(before: Denial | None, message: str, now_s: int, wait_s: int) -> Denial:
    """The denial after one more refusal; `wait_s` is the wait after a first one."""
    count = before.count + 1 if before else 1
    return Denial(count, now_s + _wait(wait_s, count), message)


NONE: Final = Refusals()


def read_refusals(text: str) -> Refusals:
    """The refusals in the annotation; none if it is not understood."""
    found = _TEXT.fullmatch(text) if text else None
    if found is None:
        return NONE
    nodes = []
    for part in found[3].split():
        name, _, numbers = part.partition("=")
        count, _, until = numbers.partition(":")
        nodes.append(RefusedNode(name, int(count), int(until)))
    why = (found[4] or "")[:_WHY_CHARS]
    return Refusals(int(found[1]), int(found[2]), tuple(nodes[-MAX_NODES:]), why)


def write_refusals(refusals: Refusals) -> str:
    """`<count> <until>`, then ` <node>=<count>:<until>` for each node, then ` | <why>`.

    Times are unix seconds.
    """
    nodes = "".join(f" {each.name}={each.count}:{each.until}" for each in refusals.nodes)
    why = f" | {refusals.why}" if refusals.why else ""
    return f"{refusals.count} {refusals.until}{nodes}{why}"


def _wait(wait_s: int, count: int) -> int:
    return wait_s * min(1 << min(count - 1, 30), _MOST_DOUBLED)


def read_answer(pod: Pod) -> str:
    """Why kube-scheduler does not bind the pod where it is planned; empty if it gave no answer.

    "No node takes a pod without a plan" is no answer. An error is none either, because the extender
    or the API server may be down; but a binding that the extender refuses, which is reported as an
    error too, is an answer if it is about the card of a share that a claim requests.
    """
    if pod.spec.node_name or pod.gates:
        return ""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            is_answer = condition.reason == "Unschedulable"
            is_answer = is_answer and Reason.NOT_PLANNED not in condition.message
            is_answer = is_answer or condition.message.startswith(_NO_SHARE)
            return (condition.message or condition.reason)[:_WHY_CHARS] if is_answer else ""
    return ""
