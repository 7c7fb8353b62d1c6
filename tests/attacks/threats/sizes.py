"""K1: objects that are too large for our programs. K2: pods that are too large for the webhook."""

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.attempt import (
    CARRIERS,
    HOME,
    PODS,
    Attempt,
    Body,
    carried,
    container,
    create,
    pod,
)
from tests.attacks.raw_client import MERGE
from tests.attacks.stage import PLAIN
from tests.attacks.threats.placing import is_elsewhere
from tests.attacks.threats.references import GROUP_API

#: A character that is stored as one byte and sent to watchers in JSON as six.
LOUD: Final = "<"
MIB: Final = 2**20
#: Characters of one variable: below the API server's limit on a field; many reach etcd's limit.
CHUNK: Final = 100_000
#: Longest body that the API server reads.
LONGEST_REQUEST: Final = 5 * MIB


def _padding(size: int, character: str = LOUD) -> list[Body]:
    """Environment variables with this many characters."""
    whole, rest = divmod(size, CHUNK)
    sizes = [CHUNK] * whole + ([rest] if rest else [])
    return [{"name": f"P{n}", "value": character * each} for n, each in enumerate(sizes)]


def loud_objects() -> Iterator[Attempt]:
    """K1: objects that our programs watch, even without a GPU, a project or our scheduler."""
    for character in (LOUD, "&", "\u2028", "x"):
        for size in (300_000, 600_000, 1_000_000, 1_300_000, 1_400_000):
            if size * len(json.dumps(character)) > LONGEST_REQUEST:
                continue
            body = pod("loud", containers=[container(env=_padding(size, character))])
            yield create("K1", f"{size} times {character!r}", body, may_pass=True, word="")
    for field in ("annotations", "labels"):
        text = LOUD * 200_000 if field == "annotations" else "x" * 63
        many = {f"example.com/{n}": text for n in range(1 if field == "annotations" else 2000)}
        body = pod("loud", **dict[str, Any]({"notes" if field == "annotations" else field: many}))
        yield create("K1", f"large {field}", body, may_pass=True, word="")
    for n in range(10):
        patch = {"metadata": {"labels": {"again": str(n)}, "annotations": {"x": LOUD * 250_000}}}
        yield Attempt(threat="K1", title=f"change {n} of a loud pod", method="PATCH", media=MERGE,
                      path=f"{PODS.format(HOME)}/{PLAIN}", body=patch, may_pass=True)  # fmt: skip
    for n in range(4):
        group = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                 "metadata": {"name": f"loud-{n}", "annotations": {"x": LOUD * 250_000}},
                 "spec": {"minMember": 1}}  # fmt: skip
        yield Attempt(threat="K1", title=f"a loud GpuPodGroup {n}", path=GROUP_API, body=group,
                      may_pass=True, word="")  # fmt: skip


def large_pods() -> Iterator[Attempt]:
    """K2: a pod that requests GPUs is gated or refused, whatever its size."""
    for carrier, (_, containers) in CARRIERS.items():
        for size in (300_000, 700_000, 1_000_000, 1_200_000, 1_300_000, 1_350_000):
            for character in (LOUD, "x"):
                asks = containers[0] | {"env": _padding(size, character)}
                body = carried(carrier, "large", containers=[asks])
                yield _held(f"{carrier} with {size} times {character!r}", body)
        notes = {"x": LOUD * 250_000}
        yield _held(f"{carrier} with a large note", carried(carrier, "large", notes=notes))
        asks = containers[0] | {"command": ["sh", "-c", LOUD * 1_200_000]}
        yield _held(f"{carrier} with a large command",
                    carried(carrier, "large", containers=[asks]))  # fmt: skip
        many = [container(f"c{n}") for n in range(400)]
        yield _held(f"{carrier} with 400 containers",
                    carried(carrier, "large", containers=[*containers, *many]))  # fmt: skip


def _held(title: str, body: Body) -> Attempt:
    words = ("gate", "webhook", "too large", "exceeds", "limit", "Too long", "must")
    return create("K2", title, body, may_pass=True, gained=is_elsewhere, word=words)
