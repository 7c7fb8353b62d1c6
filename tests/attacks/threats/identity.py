"""T1: claiming another team's project. T2: claiming a priority that is not allowed."""

from collections.abc import Iterator
from typing import Final

from extender.api.aliases import PROJECT_LABELS
from tests.attacks.attempt import (
    CARRIERS,
    HOME,
    NO_RIGHT,
    OURS,
    PODS,
    VICTIMS,
    Attempt,
    Body,
    carried,
    create,
    half,
    pod,
)
from tests.attacks.raw_client import JSON_PATCH, MERGE
from tests.attacks.stage import BOUND, HELD, PLAIN

MAY_NOT: Final = "may not use project"
LATER: Final = "preemptibility cannot be changed after creation"
#: Names of another project, and similar texts.
NAMES: Final = (
    "team-a", "team-b", "research", "default", "TEAM-A", "Team-A", "team_a", "team-a.mallory",
    "mallory.team-a", "mallory2", "team-a ", " team-a", "team-a\n", "team-a,mallory", "team-a/x",
    "../team-a", "tеam-a", "ｔeam-a", "team‑a", "x" * 64, "mallory\x00", "*", "-team-a",
)  # fmt: skip


def claims() -> Iterator[Attempt]:
    """T1."""
    for key in PROJECT_LABELS:
        for text in NAMES:
            # The webhook's message names the project; the API server refuses invalid labels.
            word = (MAY_NOT, "a valid label must")
            yield _claim(f"{key}={text!r:.40}", half("claim", labels={key: text}), word)
    for other in PROJECT_LABELS[1:]:
        both = {PROJECT_LABELS[0]: "mallory", other: "team-a"}
        yield _claim(f"own name beside {other}", half("claim", labels=both), "differ")
    for carrier in CARRIERS:
        body = carried(carrier, "claim", labels={PROJECT_LABELS[0]: "team-a"})
        yield _claim(f"{carrier} as team-a", body, MAY_NOT)
    yield from _claims_later()
    yield from _claims_by_group()
    for title, labels in (
        ("an empty name", {PROJECT_LABELS[0]: ""}),
        ("no name", {}),
        ("another department", {"ballast.dev/department": "product"}),
        ("another's user", {"ballast.dev/user": "alice"}),
    ):
        body = half(f"claim-{title.replace(' ', '-').replace(chr(39), '')}", labels=labels)
        yield create("T1", title, body, may_pass=True, gained=_belongs_to_others)


def _claim(title: str, body: Body, word: str | tuple[str, ...]) -> Attempt:
    return create("T1", title, body, word=word)


def _claims_later() -> Iterator[Attempt]:
    keys = (*PROJECT_LABELS, "ballast.dev/department")
    for name in (BOUND, HELD):
        path = f"{PODS.format(HOME)}/{name}"
        for key in keys:
            for value in ("team-a", None):
                if value is None and key in PROJECT_LABELS[1:]:
                    continue
                patch = {"metadata": {"labels": {key: value}}}
                yield Attempt(threat="T1", title=f"{key}={value} on the {name} pod", method="PATCH",
                              path=path, body=patch, media=MERGE, word=LATER)  # fmt: skip
    patch = {"metadata": {"labels": {PROJECT_LABELS[0]: "team-a"}}}
    yield Attempt(threat="T1", title="team-a on a pod without GPUs", method="PATCH",
                  path=f"{PODS.format(HOME)}/{PLAIN}", body=patch, media=MERGE,
                  word=LATER)  # fmt: skip


def _claims_by_group() -> Iterator[Attempt]:
    for victim in VICTIMS:
        group = {"metadata": {"name": f"as-{victim}"}, "spec": {"project": victim}}
        path = f"{OURS}/namespaces/{HOME}/gpupodgroups"
        body = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup", **group}
        yield Attempt(threat="T1", title=f"a GpuPodGroup of {victim}", path=path, body=body,
                      may_pass=True)  # fmt: skip
        member = half(f"in-as-{victim}", labels={"ballast.dev/pod-group": f"as-{victim}"})
        yield create("T1", f"a pod in the GpuPodGroup of {victim}", member, may_pass=True)
    spec = {"department": "research", "namespaces": [HOME]}
    for kind, plural in (("GpuProject", "gpuprojects"), ("GpuDepartment", "gpudepartments")):
        body = {"apiVersion": "ballast.dev/v1alpha1", "kind": kind, "metadata": {"name": "mine"}}
        body["spec"] = spec if kind == "GpuProject" else {}
        yield Attempt(threat="T1", title=f"a {kind} of its own", path=f"{OURS}/{plural}", body=body,
                      word=NO_RIGHT)  # fmt: skip
    for name, patch in (
        ("mallory", {"spec": {"nodePools": [{"name": "default", "gpu": {"quota": 100}}]}}),
        ("mallory", {"spec": {"allowedPriorityClasses": ["vip"]}}),
        ("team-a", {"spec": {"namespaces": ["team-a", HOME]}}),
        ("team-b", {"spec": {"nodePools": []}}),
    ):
        for part in ("", "/status"):
            yield Attempt(threat="T1", title=f"{patch} to project {name}{part}", method="PATCH",
                          path=f"{OURS}/gpuprojects/{name}{part}", body=patch, media=MERGE,
                          word=NO_RIGHT)  # fmt: skip


def _belongs_to_others(stored: Body) -> str:
    labels = stored["metadata"]["labels"]
    whose = labels["ballast.dev/project"], labels["ballast.dev/department"]
    return "" if whose == ("mallory", "research") else f"counts against {whose}"


def priorities() -> Iterator[Attempt]:
    """T2."""
    not_allowed = "is not allowed in project"
    for carrier in CARRIERS:
        for name in ("system-node-critical", "system-cluster-critical", "vip", "below-all",
                     "ballast-inference"):  # fmt: skip
            body = carried(carrier, "high", priorityClassName=name)
            yield create("T2", f"{carrier} of class {name!r}", body, word=not_allowed)
        body = carried(carrier, "high", labels={"ballast.dev/workload-kind": "inference"})
        yield create("T2", f"{carrier} of kind inference", body, word=not_allowed)
        for field, value in (("priority", 2_000_000_000), ("priority", 1_000_000_001)):
            body = carried(carrier, "high", **{field: value})
            yield create("T2", f"{carrier} with {field} {value}", body, word="must not be provided")
    for kind in ("Inference", "system", "interactive,inference", "vip"):
        body = half("high", labels={"ballast.dev/workload-kind": kind})
        yield create("T2", f"kind {kind}", body, word="is not one of")
    yield from _priorities_later()


def _priorities_later() -> Iterator[Attempt]:
    for name in (BOUND, HELD):
        path = f"{PODS.format(HOME)}/{name}"
        for key, value in (
            ("priority", 1_000_000_000), ("priorityClassName", "vip"),
            ("preemptionPolicy", "Never"),
        ):  # fmt: skip
            patch = [{"op": "replace", "path": f"/spec/{key}", "value": value}]
            yield Attempt(threat="T2", title=f"{key} of the {name} pod", method="PATCH", path=path,
                          body=patch, media=JSON_PATCH,
                          word="may not change fields")  # fmt: skip
        for label in ("ballast.dev/workload-kind", "ballast.dev/preemptibility"):
            patch_of = {"metadata": {"labels": {label: "inference"}}}
            yield Attempt(threat="T2", title=f"{label} of the {name} pod", method="PATCH",
                          path=path, body=patch_of, media=MERGE, word=LATER)  # fmt: skip
    mine = {"metadata": {"name": "mine"}, "value": 10**9}
    folder = "/apis/scheduling.k8s.io/v1/priorityclasses"
    yield Attempt(threat="T2", title="a class of its own", path=folder, body=mine, word=NO_RIGHT)
    yield Attempt(threat="T2", title="a greater value of ballast-training", method="PATCH",
                  path=f"{folder}/ballast-training", body={"value": 10**9}, media=MERGE,
                  word=NO_RIGHT)  # fmt: skip
    yield create("T2", "work that may not be preempted, over quota", pod(
        "unmovable",
        labels={"ballast.dev/preemptibility": "non-preemptible"},
        notes={"gpu-fraction": "0.9", "gpu-fraction-num-devices": "2"},
    ), may_pass=True, word="OverLimit")  # fmt: skip
