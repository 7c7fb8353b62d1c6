"""One attempt as a value, and what it came to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.attacks.raw_client import JSON, Answer

Body = dict[str, Any]
#: The tenant's namespace; another of its own, which enforces Pod Security's level `baseline`.
HOME: Final = "mallory"
HARDENED: Final = "mallory-baseline"
#: Namespaces and projects of others.
VICTIMS: Final = ("team-a", "team-b")
NODES: Final = ("gpu-node-0000", "gpu-node-0001", "gpu-node-0002")
PODS: Final = "/api/v1/namespaces/{}/pods"
OURS: Final = "/apis/ballast.dev/v1alpha1"
TENANT: Final = "tenant"
#: What the API server says where a right is missing.
NO_RIGHT: Final = "cannot"
#: The one webhook without which the API server refuses a pod; it does so with a status of 500.
WAITED_FOR: Final = 'failed calling webhook "claims.ballast.dev"'

#: Looks at what the API server stored; a sentence says what the attacker has gained by it.
Look = Callable[[Body], str]


@dataclass(slots=True, frozen=True, kw_only=True)
class Attempt:
    """One request that should not work.

    It has to be refused with `word` among the words of the refusal; or, where `may_pass`, it may be
    stored if `gained` finds nothing in what was stored and no state of others changes. A `body`
    that is a function makes it of what is stored now. `as_user`: the user it impersonates.
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
        """What the attacker gained by the answer; empty when that is nothing."""
        if answer.is_stored:
            if not self.may_pass:
                return "was stored"
            return self.gained(answer.body) if self.gained else ""
        if answer.status >= 500 and WAITED_FOR not in answer.words:
            return f"made the API server fail: {answer.status} {answer.words}"
        return ""

    def confusion(self, answer: Answer) -> str:
        """Why a refusal doesn't tell its reader what is wrong; empty when it does."""
        if answer.is_stored or answer.status >= 500:
            return ""
        wanted = (self.word,) if isinstance(self.word, str) else self.word
        if any(word in answer.words for word in wanted) and len(answer.words) >= 20:
            return ""
        return f"was refused, but without {self.word!r}: {answer.status} {answer.words}"


@dataclass(slots=True)
class Tally:
    """What the suite tried, and what came through."""

    tried: dict[str, int] = field(default_factory=dict)
    succeeded: list[str] = field(default_factory=list)

    @property
    def n_tried(self) -> int:
        """Attempts in all."""
        return sum(self.tried.values())

    def note(self, threat: str, title: str, why: str) -> str:
        """Counts one attempt; the line that tells of its success, or the empty string."""
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
    """A container that asks for so much of a resource."""
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
    """A pod as its author writes it."""
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
    """A pod that asks for half a card by annotation."""
    fields["notes"] = {"gpu-fraction": "0.5"} | dict(fields.get("notes") or {})
    return pod(name, **fields)


#: Every way in which a pod asks for GPUs: name -> (annotations, containers).
CARRIERS: Final[dict[str, tuple[dict[str, str], list[Body]]]] = {
    "a fraction": ({"gpu-fraction": "0.5"}, [container()]),
    "memory": ({"gpu-memory": "8192"}, [container()]),
    "milli": ({}, [asking("ballast.dev/gpu-milli", "500")]),
    "a whole card": ({}, [asking("nvidia.com/gpu")]),
    "an instance": ({}, [asking("nvidia.com/mig-1g.10gb")]),
}


def carried(carrier: str, name: str, **fields: Any) -> Body:
    """A pod that asks for GPUs in one of the `CARRIERS`' ways."""
    notes, containers = CARRIERS[carrier]
    fields.setdefault("containers", containers)
    fields["notes"] = notes | dict(fields.get("notes") or {})
    return pod(name, **fields)


def create(threat: str, title: str, body: Body, namespace: str = HOME, **fields: Any) -> Attempt:
    """An attempt to create a pod; its name becomes a prefix, so that no two are in their way."""
    meta = dict(body["metadata"])
    if name := meta.pop("name", ""):
        meta = {"generateName": f"{name}-"} | meta
    body = body | {"metadata": meta}
    return Attempt(threat=threat, title=title, path=PODS.format(namespace), body=body, **fields)
