"""One attempt as a value, and its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.attacks.raw_client import JSON, Answer

Body = dict[str, Any]
#: The tenant's namespaces; the second enforces Pod Security's level `baseline`.
HOME: Final = "mallory"
HARDENED: Final = "mallory-baseline"
#: Namespaces and projects of others.
VICTIMS: Final = ("team-a", "team-b")
NODES: Final = ("gpu-node-0000", "gpu-node-0001", "gpu-node-0002")
PODS: Final = "/api/v1/namespaces/{}/pods"
OURS: Final = "/apis/ballast.dev/v1alpha1"
TENANT: Final = "tenant"
#: In the API server's message if a right is missing.
NO_RIGHT: Final = "cannot"
#: Message, with status 500, if the one webhook is missing without which pods are refused.
WAITED_FOR: Final = 'failed calling webhook "claims.ballast.dev"'

#: Checks a stored object; returns a sentence about the attacker's gain, or an empty string.
Look = Callable[[Body], str]


@dataclass(slots=True, frozen=True, kw_only=True)
class Attempt:
    """One request that must not succeed.

    It must be refused with `word` in the message. If `may_pass`, it may instead be stored, if
    `gained` finds nothing in the stored object and no state of others changes. A `body` that is a
    function makes the body from the stored object. `as_user`: the impersonated user.
    """

    threat: str
    title: str
    method: str = "POST"
    path: str
    body: Any = None
    media: str = JSON
    actor: str = TENANT
    as_user: str = ""
    word: str | tuple[str, ...] = ""
    may_pass: bool = False
    gained: Look | None = None

    def success(self, answer: Answer) -> str:
        """What the attacker gained by the answer; empty if nothing."""
        if answer.is_stored:
            if not self.may_pass:
                return "was stored"
            return self.gained(answer.body) if self.gained else ""
        if answer.status >= 500 and WAITED_FOR not in answer.words:
            return f"made the API server fail: {answer.status} {answer.words}"
        return ""

    def confusion(self, answer: Answer) -> str:
        """Why a refusal does not say what is wrong; empty if it does."""
        if answer.is_stored or answer.status >= 500:
            return ""
        wanted = (self.word,) if isinstance(self.word, str) else self.word
        if any(word in answer.words for word in wanted) and len(answer.words) >= 20:
            return ""
        return f"was refused, but without {self.word!r}: {answer.status} {answer.words}"


@dataclass(slots=True)
class Tally:
    """Counts of attempts, and those that succeeded."""

    tried: dict[str, int] = field(default_factory=dict)
    succeeded: list[str] = field(default_factory=list)

    @property
    def n_tried(self) -> int:
        """Number of all attempts."""
        return sum(self.tried.values())

    def note(self, threat: str, title: str, why: str) -> str:
        """Counts one attempt; returns a line if it succeeded, else an empty string."""
        self.tried[threat] = self.tried.get(threat, 0) + 1
        if not why:
            return ""
        line = f"{threat} {title}: {why}"
        self.succeeded.append(line)
        return line

    def __str__(self) -> str:
        return f"attacks: {self.n_tried} tried, {len(self.succeeded)} succeeded"


def container(name: str = "main", **fields: Any) -> Body:
    """A container of a pod."""
    return {"name": name, "image": "example.invalid/none", **fields}


def asking(resource: str, amount: str = "1", name: str = "main", **fields: Any) -> Body:
    """A container that requests an amount of a resource."""
    limits = {resource: amount}
    return container(name, resources={"limits": limits, "requests": dict(limits)}, **fields)


def pod(
    name: str,
    *,
    notes: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str] | None = None,
    meta: Body | None = None,
    **spec: Any,
) -> Body:
    """A pod as a user writes it."""
    body: Body = {"name": name, **(meta or {})}
    if notes:
        body["annotations"] = dict(notes)
    if labels:
        body["labels"] = dict(labels)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": body,
        "spec": {"containers": [container()], "terminationGracePeriodSeconds": 0, **spec},
    }


def half(name: str, **fields: Any) -> Body:
    """A pod that requests half a card by annotation."""
    fields["notes"] = {"gpu-fraction": "0.5"} | dict(fields.get("notes") or {})
    return pod(name, **fields)


#: All ways to request GPUs: name -> (annotations, containers).
CARRIERS: Final[dict[str, tuple[dict[str, str], list[Body]]]] = {
    "a fraction": ({"gpu-fraction": "0.5"}, [container()]),
    "memory": ({"gpu-memory": "8192"}, [container()]),
    "milli": ({}, [asking("ballast.dev/gpu-milli", "500")]),
    "a whole card": ({}, [asking("nvidia.com/gpu")]),
    "an instance": ({}, [asking("nvidia.com/mig-1g.10gb")]),
}


def carried(carrier: str, name: str, **fields: Any) -> Body:
    """A pod that requests GPUs in one of the ways of `CARRIERS`."""
    notes, containers = CARRIERS[carrier]
    fields.setdefault("containers", containers)
    fields["notes"] = notes | dict(fields.get("notes") or {})
    return pod(name, **fields)


def create(threat: str, title: str, body: Body, namespace: str = HOME, **fields: Any) -> Attempt:
    """An attempt to create a pod; its name becomes a prefix, so that names do not collide."""
    meta = dict(body["metadata"])
    if name := meta.pop("name", ""):
        meta = {"generateName": f"{name}-"} | meta
    body = body | {"metadata": meta}
    return Attempt(threat=threat, title=title, path=PODS.format(namespace), body=body, **fields)
