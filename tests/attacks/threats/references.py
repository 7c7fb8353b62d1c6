"""T17: names with special characters. T18: references to objects of others. T19: text that others
read. T20: very many objects.
"""

from collections.abc import Iterator
from typing import Final

from extender.api import names
from tests.attacks.attempt import HOME, OURS, PODS, VICTIMS, Attempt, Body, create, half, pod

#: Names with a meaning in a path, a URL, a query or a format string.
PATHS: Final = (
    "../team-a", "..%2fteam-a", "%2e%2e/secrets", "a/b", "/etc/passwd", "http://127.0.0.1:1/",
    "a?watch=1", "a#b", "a\nb", "a\r\nX-H: 1", "a\x00b", "%s%n", "$(id)", "`id`", "{{7*7}}", "a b",
    "\u2028", "..", ".", "a%00",
)  # fmt: skip
GROUP_API: Final = f"{OURS}/namespaces/{HOME}/gpupodgroups"


def paths() -> Iterator[Attempt]:
    """T17."""
    label = ("a valid label must", "is not a name of at most")
    for text in PATHS:
        yield create("T17", f"group {text!r}", half(
            "path", labels={names.LABEL_POD_GROUP: text}), word=label)  # fmt: skip
        yield create("T17", f"node pool {text!r}", half(
            "path", notes={names.ANNOTATION_NODE_POOLS: text}),
            word="is not the name of a node pool")  # fmt: skip
    for text in PATHS[:8]:
        for kind, version in (
            ("Job", "batch/v1"), ("StatefulSet", "apps/v1"), ("RayCluster", "ray.io/v1/../../v1"),
            ("Job", "batch/../../api/v1"),
        ):  # fmt: skip
            owner = {"apiVersion": version, "kind": kind, "name": text, "uid": "u"}
            body = half("path", meta={"ownerReferences": [owner | {"controller": True}]})
            yield create("T17", f"an owner {version} {kind} {text!r}", body, may_pass=True,
                         word=("Invalid value", "is not"))  # fmt: skip
    for text in PATHS[:6]:
        body = half("x")
        body["metadata"]["name"] = text
        yield Attempt(threat="T17", title=f"a pod named {text!r}", path=PODS.format(HOME),
                      body=body, word="RFC 1123")  # fmt: skip
        group = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                 "metadata": {"name": text}, "spec": {}}  # fmt: skip
        yield Attempt(threat="T17", title=f"a pod group named {text!r}", path=GROUP_API, body=group,
                      word="RFC 1123")  # fmt: skip


def references() -> Iterator[Attempt]:
    """T18."""
    for victim, group in (("team-a", "gang"), ("team-b", "large")):
        body = half("join", labels={names.LABEL_POD_GROUP: group})
        yield create("T18", f"the name of {victim}'s group", body, may_pass=True)
        named = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                 "metadata": {"name": group}, "spec": {"minMember": 1000}}  # fmt: skip
        yield Attempt(threat="T18", title=f"a GpuPodGroup named as {victim}'s", path=GROUP_API,
                      body=named, may_pass=True)  # fmt: skip
        for text in (f"{victim}/{group}", f"{victim}.{group}"):
            body = half("join", labels={names.LABEL_POD_GROUP: text})
            yield create("T18", f"group {text}", body, word=("a valid label", "is not a name"))
    for kind, version, name in (
        ("Job", "batch/v1", "a"), ("ReplicaSet", "apps/v1", "rs"),
        ("GpuPodGroup", OURS[6:], "gang"),
        ("Pod", "v1", "a-1"), ("GpuNode", OURS[6:], "gpu-node-0000"), ("Node", "v1", "gpu-node-0"),
    ):  # fmt: skip
        owner = {"apiVersion": version, "kind": kind, "name": name, "controller": True,
                 "uid": "11111111-2222-3333-4444-555555555555"}  # fmt: skip
        body = half("owned", meta={"ownerReferences": [owner]})
        yield create("T18", f"the owner {kind} {name} elsewhere", body, may_pass=True, word="")
    for name in ("a-1", "a-2", "fraction", "solo", "waiting"):
        body = half(name)
        yield Attempt(threat="T18", title=f"a pod named as another's, {name}", body=body,
                      path=PODS.format(HOME), may_pass=True)  # fmt: skip
    for victim in VICTIMS:
        term = {
            "labelSelector": {},
            "namespaces": [victim],
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        yield create("T18", f"keeping away from {victim}", half("apart", affinity=anti),
                     may_pass=True)  # fmt: skip
        elsewhere = half("placed", meta={"namespace": victim})
        yield create("T18", f"a body of namespace {victim}", elsewhere,
                     word="does not match the namespace")  # fmt: skip
        path = f"{OURS}/namespaces/{victim}/gpupodgroups"
        group_of = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                    "metadata": {"name": "mine"}, "spec": {}}  # fmt: skip
        yield Attempt(threat="T18", title=f"a GpuPodGroup in {victim}", path=path, body=group_of,
                      word="cannot")  # fmt: skip
        yield create("T18", f"a pod in {victim}", half("mine"), victim, word="cannot")


#: Marks texts of T19, to find them in output for others.
MARK: Final = "zzmarkzz"
TEXTS: Final = (
    f"{MARK}\n{{\"level\":\"error\"}}", f"{MARK}\x1b[31m", f"{MARK}%s%d%n", f"{MARK}\"}} 1\nx 1",
    f"{MARK}\u202e", f"{MARK}<script>", f"{MARK}{{{{x}}}}", f"{MARK}\r\nHTTP/1.1 200 OK",
    f"{MARK}" + "A" * 4000, f"{MARK}\\u0000", f"{MARK}',''); --",
)  # fmt: skip


def texts() -> Iterator[Attempt]:
    """T19."""
    for text in TEXTS:
        for key in ("gpu-fraction", names.ANNOTATION_NODE_POOLS, names.ANNOTATION_SUB_GROUPS):
            body = pod("text", notes={"gpu-fraction": "0.5"} | {key: text})
            yield create("T19", f"{key}={text!r:.30}", body, word=("such as", "is not"))
        body = half("text", notes={"example.com/note": text}, labels={"app": MARK})
        yield create("T19", f"a note {text!r:.30}", body, may_pass=True)
    for key in (names.LABEL_USER, names.LABEL_SUB_GROUP, names.LABEL_WORKLOAD_KIND):
        body = half("text", labels={key: MARK})
        yield create("T19", f"{key}={MARK}", body, may_pass=True, word="is not one of")


def floods() -> Iterator[Attempt]:
    """T20."""
    for n in range(40):
        body = half("flood", labels={names.LABEL_POD_GROUP: f"flood-{n}"})
        yield create("T20", f"group {n} of many", body, may_pass=True)
    for title, notes in (
        ("a huge gang", {names.ANNOTATION_MIN_MEMBER: "999999999"}),
        ("many sub-groups",
         {names.ANNOTATION_SUB_GROUPS: ",".join(f"s{n}=999999" for n in range(64))}),
        ("large notes", {"x": "A" * 200_000}),
        ("deep affinity", {}),
    ):  # fmt: skip
        labels = {names.LABEL_POD_GROUP: "huge"}
        terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(200)]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        given: Body = {"affinity": {"nodeAffinity": required}} if title == "deep affinity" else {}
        yield create("T20", title, half("flood", labels=labels, notes=notes, **given),
                     may_pass=True, word="")  # fmt: skip
    for n in range(10):
        sub_groups = [{"name": f"s{ix}", "parent": f"s{ix + 1}"} for ix in range(50)]
        spec = {"minMember": 1, "subGroups": sub_groups}
        group = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                 "metadata": {"name": f"flood-{n}"}, "spec": spec}  # fmt: skip
        yield Attempt(threat="T20", title=f"tangled GpuPodGroup {n}", path=GROUP_API, body=group,
                      may_pass=True, word="")  # fmt: skip
