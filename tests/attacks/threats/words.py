"""T3: hostile numbers. T4: changed requests after admission. T5: forged decisions."""

from collections.abc import Callable, Iterator
from typing import Final

from extender.api import names
from extender.api.demand import COMPUTE_LIMIT, COMPUTE_REQUEST, DEVICES, FRACTION, MEMORY
from tests.attacks.attempt import (
    HOME,
    NO_RIGHT,
    NODES,
    PODS,
    VICTIMS,
    Attempt,
    Body,
    asking,
    create,
    half,
    pod,
)
from tests.attacks.raw_client import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC
from tests.attacks.stage import BOUND, HELD, PLAIN
from tests.support.hostile import hostile_counts, hostile_fractions

#: Annotations with decisions, which only our programs may write.
DECIDED: Final = {
    names.ANNOTATION_PLAN: f"1 {NODES[0]}",
    names.ANNOTATION_REVOKED: f"{NODES[0]} 1 1",
    names.ANNOTATION_REFUSED: "0 0",
    names.ANNOTATION_CARDS: "0:1000:81920",
}
#: Annotations with requests, which may not change after creation.
ASKED: Final = {
    FRACTION: "0.8",
    MEMORY: "81920",
    DEVICES: "8",
    COMPUTE_LIMIT: "1",
    names.ANNOTATION_COMPUTE_REQUEST: "1000",
    names.ANNOTATION_NODE_POOLS: "other",
    names.ANNOTATION_MIN_MEMBER: "1",
    names.ANNOTATION_TOPOLOGY_REQUIRED: "zone",
}
ONLY_OURS: Final = ("only Ballast writes them", "only Ballast writes ballast.dev/")
ONCE: Final = "delete the pod and create it again"
_CHOSEN: Final = 30


def numbers() -> Iterator[Attempt]:
    """T3."""
    for key, texts, word in (
        (FRACTION, hostile_fractions(), 'such as "0.5"'),
        (MEMORY, hostile_counts(), "whole number from 1 to 999999999"),
    ):
        step = len(texts) // _CHOSEN
        for text in texts[::step]:
            yield create("T3", f"{key}={text!r:.40}", pod("n", notes={key: text}), word=word)
    for key, word in (
        (DEVICES, "whole number"),
        (names.ANNOTATION_MIN_MEMBER, "whole number from 1 to 999999999"),
        (COMPUTE_REQUEST, "a share between 0 and 1"),
        (COMPUTE_LIMIT, "a share between 0 and 1"),
        (names.ANNOTATION_COMPUTE_LIMIT, "whole number from 0 to 1000"),
        (names.ANNOTATION_SUB_GROUPS, 'such as \\"driver=1,workers=8\\"'.replace("\\", "")),
    ):
        for text in ("0x1", "-1", "1e3", "NaN", "٢", " 1", "1\n", "0_5", "9" * 40):
            body = half("n", notes={key: text})
            yield create("T3", f"{key}={text!r:.40}", body, word=word)
    for resource, amount, words in (
        ("nvidia.com/gpu", "0.5", "is not a whole number"),
        ("nvidia.com/gpu", "-1", ("must be greater than or equal", "is not")),
        ("nvidia.com/gpu", "1e-1", "is not a"),
        ("nvidia.com/gpu", "NaN", "quantities must match"),
        ("ballast.dev/gpu-milli", "500m", "is not a whole number"),
        ("ballast.dev/gpu-milli", "-500", ("must be greater than or equal", "is not")),
        ("ballast.dev/gpu-milli", "0x1f4", "quantities must match"),
        ("ballast.dev/gpu-milli", "1500", ("1000", "gpu-milli")),
    ):
        yield create("T3", f"{resource} {amount}", pod("n", containers=[asking(resource, amount)]),
                     word=words)  # fmt: skip
    yield from _contradictions()


def _contradictions() -> Iterator[Attempt]:
    for title, body, word in (
        ("less milli than the fraction",
         pod("n", notes={FRACTION: "0.9"}, containers=[asking("ballast.dev/gpu-milli", "100")]),
         ("0.9", "900", "differ", "disagree", "use one of them")),
        ("more milli than the fraction",
         pod("n", notes={FRACTION: "0.1"}, containers=[asking("ballast.dev/gpu-milli", "900")]),
         ("0.1", "100", "differ", "disagree", "use one of them")),
        ("a fraction and memory", half("n", notes={MEMORY: "1"}), "use one of them"),
        ("a fraction and a card", half("n", containers=[asking("nvidia.com/gpu")]),
         "use one of them"),
        ("a fraction and an instance", half("n", containers=[asking("nvidia.com/mig-1g.10gb")]),
         "use one of them"),
        ("less milli than cards",
         pod("n", containers=[asking("nvidia.com/gpu", "2"),
                              asking("ballast.dev/gpu-milli", "1", name="other")]),
         ("2000", "gpu-milli")),
        ("a greater guarantee than limit",
         half("n", notes={COMPUTE_REQUEST: "0.9", COMPUTE_LIMIT: "0.1"}), "above"),
        ("two limits", half("n", notes={names.ANNOTATION_COMPUTE_LIMIT: "1000",
                                        COMPUTE_LIMIT: "0.1"}), ("differ", "keep one")),
    ):  # fmt: skip
        yield create("T3", title, body, word=word)
    twice = b'{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"n-","annotations":{' \
        b'"gpu-fraction":"0.1","gpu-fraction":"0.9"}},"spec":{"containers":[{"name":"m",' \
        b'"image":"i"}],"terminationGracePeriodSeconds":0}}'  # fmt: skip
    yield Attempt(threat="T3", title="one key twice", path=PODS.format(HOME), body=twice,
                  may_pass=True)  # fmt: skip


_Form = Callable[[str, str, str], tuple[str, Body | list[Body] | Callable[[Body], Body], str]]


def _merged(_name: str, key: str, value: str) -> tuple[str, Body, str]:
    return "PATCH", {"metadata": {"annotations": {key: value}}}, MERGE


def _strategic(_name: str, key: str, value: str) -> tuple[str, Body, str]:
    return "PATCH", {"metadata": {"annotations": {key: value}}}, STRATEGIC


def _applied(name: str, key: str, value: str) -> tuple[str, Body, str]:
    body = {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {key: value}}}  # fmt: skip
    return "PATCH", body, APPLY


def _by_pointer(_name: str, key: str, value: str) -> tuple[str, list[Body], str]:
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    return "PATCH", [{"op": "add", "path": path, "value": value}], JSON_PATCH


def _replaced(_name: str, key: str, value: str) -> tuple[str, Callable[[Body], Body], str]:
    def replace(stored: Body) -> Body:
        stored["metadata"]["annotations"][key] = value
        return stored

    return "PUT", replace, JSON


def _removed(_name: str, key: str, _value: str) -> tuple[str, Body, str]:
    return "PATCH", {"metadata": {"annotations": {key: None}}}, MERGE


FORMS: Final[dict[str, _Form]] = {
    "merge patch": _merged,
    "strategic patch": _strategic,
    "apply": _applied,
    "JSON patch": _by_pointer,
    "replacing": _replaced,
}


def edits() -> Iterator[Attempt]:
    """T4."""
    for name in (BOUND, HELD):
        for form, build in FORMS.items():
            # All annotations in one form, and the first of each kind in all forms.
            words = DECIDED | ASKED if form == "merge patch" else _firsts()
            for key, value in words.items():
                word = ONLY_OURS if key in DECIDED else ONCE
                yield _edit(f"{key} of the {name} pod by {form}", name, build, key, value, word)
        yield _edit(f"no {FRACTION} on the {name} pod", name, _removed, FRACTION, "", ONCE)
        yield from _edits_by_subresource(name)
    for key in (names.ANNOTATION_PLAN, names.ANNOTATION_CARDS):
        word = ONLY_OURS
        bound = f"no {key} on the bound pod"
        yield _edit(bound, BOUND, _removed, key, "", word)
    without_notes = [{"op": "remove", "path": "/metadata/annotations"}]
    for name in (BOUND, HELD):
        yield Attempt(threat="T4", title=f"no annotations on the {name} pod", method="PATCH",
                      path=f"{PODS.format(HOME)}/{name}", body=without_notes, media=JSON_PATCH,
                      word=(*ONLY_OURS, ONCE))  # fmt: skip


def _firsts() -> dict[str, str]:
    return {names.ANNOTATION_PLAN: DECIDED[names.ANNOTATION_PLAN], FRACTION: ASKED[FRACTION]}


def _edit(
    title: str, name: str, build: _Form, key: str, value: str, word: str | tuple[str, ...]
) -> Attempt:
    method, body, media = build(name, key, value)
    path = f"{PODS.format(HOME)}/{name}"
    if media == APPLY:
        path += "?fieldManager=mine&force=true"
    return Attempt(threat="T4", title=title, method=method, path=path, body=body, media=media,
                   word=word)  # fmt: skip


def _edits_by_subresource(name: str) -> Iterator[Attempt]:
    note = {"metadata": {"annotations": {names.ANNOTATION_PLAN: "1 n"}}}
    for part in ("status", "resize", "ephemeralcontainers"):
        yield Attempt(threat="T4", title=f"a plan on the {name} pod by {part}", method="PATCH",
                      path=f"{PODS.format(HOME)}/{name}/{part}", body=note, media=MERGE,
                      may_pass=True, gained=_is_planned,
                      word=(NO_RIGHT, "Forbidden", *ONLY_OURS))  # fmt: skip


def _is_planned(stored: Body) -> str:
    said = stored["metadata"].get("annotations", {}).get(names.ANNOTATION_PLAN, "")
    return f"has the plan {said!r}" if said == "1 n" else ""


def forgeries() -> Iterator[Attempt]:
    """T5."""
    for key, value in DECIDED.items():
        for text in (value, "", "999999999999999999 gpu-node-0001", "0:1:1,1:1:1", "\n"):
            for build, what in ((half, "half a card"), (pod, "no card")):
                body = build("forged", notes={key: text})
                yield create("T5", f"{key}={text!r} with {what}", body,
                             may_pass=not text, word=ONLY_OURS)  # fmt: skip
    for key in ("hami.io/vgpu-devices-allocated", "hami.io/bind-phase", "nvidia.com/gpu-uuid",
                "volcano.sh/gpu-index", "ALIYUN_COM_GPU_MEM_IDX", "kai.scheduler/gpu-group",
                "ballast.dev/Plan", "ballast.dev/cards.", "x-ballast.dev/cards"):  # fmt: skip
        body = half("forged", notes={key: "0:1000:81920"})
        yield create("T5", f"another system's word {key}", body, may_pass=True,
                     word="must consist of")  # fmt: skip
    for key, value in DECIDED.items():
        patch = {"metadata": {"annotations": {key: value}}}
        yield Attempt(threat="T5", title=f"{key} on a pod without GPUs", method="PATCH",
                      path=f"{PODS.format(HOME)}/{PLAIN}", body=patch, media=MERGE,
                      word=ONLY_OURS)  # fmt: skip
    yield from _bindings()


def _bindings() -> Iterator[Attempt]:
    for notes in ({}, {names.ANNOTATION_CARDS: "0:1000:81920"}):
        for namespace, name in ((HOME, HELD), (HOME, PLAIN), (VICTIMS[1], "waiting")):
            for path in (
                f"{PODS.format(namespace)}/{name}/binding",
                f"/api/v1/namespaces/{namespace}/bindings",
            ):
                body = {
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": {"name": name, "annotations": notes},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": NODES[0]},
                }  # fmt: skip
                yield Attempt(threat="T5", title=f"a Binding of {namespace}/{name} with {notes}",
                              path=path, body=body, word=NO_RIGHT)  # fmt: skip
