"""Builds histories: a cluster told write by write, each judged as it is told.

Times are the observer's clock in seconds; they pass only when the story says so.
"""

from typing import Any, Self

from tests.support.auditor import Change, Checker, Limits, Violation
from tests.support.auditor.history import DELETED, to_raw

EPOCH = 7
PLACES = {"Pod": "team", "GpuPodGroup": "team", "Event": "team"}


class Story:
    """A history that begins with nothing. Methods return the story, so that they chain."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.checker = Checker(limits)
        self.violations: list[Violation] = []
        self.history: list[Change] = []
        self.now_s = 100.0
        self._revision = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._n_events = 0

    @property
    def broken(self) -> set[str]:
        """Names of the invariants broken so far."""
        return {each.invariant for each in self.violations}

    # -- any object --------------------------------------------------------------------------

    def write(self, kind: str, name: str, obj: dict[str, Any] | None) -> Self:
        """One write of one object; None deletes it."""
        self._revision += 1
        namespace = PLACES.get(kind, "")
        if obj is None:
            del self._objects[kind, name]
        else:
            self._objects[kind, name] = obj
        value = DELETED if obj is None else to_raw(obj)
        change = Change(self._revision, self.now_s, kind, namespace, name, value)
        self.history.append(change)
        self.violations += self.checker.observe(change)
        return self

    def wait(self, seconds: float) -> Self:
        """Let time pass, with a tick of the clock at the end."""
        self.now_s += seconds
        self.violations += self.checker.tick(self.now_s)
        return self

    def rest(self) -> Self:
        """Let enough time pass that reports must agree, and judge them."""
        self.now_s += self.checker.limits.rest_s
        self.violations += self.checker.settle(self.now_s)
        return self

    # -- nodes and queues --------------------------------------------------------------------

    def node(self, name: str = "n1", cards: int = 2, mib: int = 80000, **more: Any) -> Self:
        """A GPU node with its GpuNode."""
        self.write("Node", name, {"metadata": {"name": name, "labels": more.get("labels", {})}})
        devices = [{"index": ix, "memoryMiB": mib} for ix in range(cards)]
        ledger = {"metadata": {"name": name}, "spec": {}, "status": {"devices": devices}}
        return self.write("GpuNode", name, ledger)

    def cordon(self, name: str) -> Self:
        """Mark the node unschedulable."""
        node = {"metadata": {"name": name}, "spec": {"unschedulable": True}}
        return self.write("Node", name, node)

    def sicken(self, name: str, index: int) -> Self:
        """Report a card as unhealthy."""
        ledger = self._objects["GpuNode", name]
        ledger["status"]["devices"][index]["health"] = "Unhealthy"
        return self.write("GpuNode", name, ledger)

    def department(self, name: str, quota: object, **status: object) -> Self:
        """A department with a quota in pool `default`; status: fairShare, allocated."""
        return self.write("GpuDepartment", name, queue_of(name, {}, quota, status))

    def project(self, name: str, department: str, quota: object, **status: object) -> Self:
        """A project with a quota in pool `default`; status: fairShare, allocated."""
        spec = {"department": department}
        return self.write("GpuProject", name, queue_of(name, spec, quota, status))

    def group(self, name: str, min_member: int) -> Self:
        """A GpuPodGroup."""
        obj = {"metadata": {"name": name, "namespace": "team"}, "spec": {"minMember": min_member}}
        return self.write("GpuPodGroup", name, obj)

    # -- pods --------------------------------------------------------------------------------

    def pod(self, name: str, *, fraction: str = "0.5", **more: Any) -> Self:
        """A gated GPU pod. More: project, group, priority, asks (annotations)."""
        labels = {"ballast.dev/project": more.get("project", "red")}
        if group := more.get("group"):
            labels["ballast.dev/pod-group"] = group
        obj = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "labels": labels,
                "annotations": more.get("asks", {"gpu-fraction": fraction}),
                "ownerReferences": [{"uid": more.get("owner", "uid-job"), "controller": True}],
            },
            "spec": {
                "priority": more.get("priority", 50),
                "schedulingGates": [{"name": "ballast.dev/admission"}],
                "containers": [{"name": "main"}],
            },
            "status": {"phase": "Pending"},
        }
        return self.write("Pod", name, obj)

    def change_pod(self, name: str, **changes: Any) -> Self:
        """Write a pod again with `annotations` merged, and `spec` and `status` fields replaced."""
        old = self._objects["Pod", name]
        meta = dict(old["metadata"])
        meta["annotations"] = {
            key: value
            for key, value in (meta["annotations"] | changes.get("annotations", {})).items()
            if value is not None
        }
        meta |= changes.get("metadata", {})
        obj = {
            "metadata": meta,
            "spec": old["spec"] | changes.get("spec", {}),
            "status": old["status"] | changes.get("status", {}),
        }
        return self.write("Pod", name, obj)

    def release(self, name: str, node: str = "n1", epoch: int = EPOCH) -> Self:
        """Remove the gate with a plan, as the controller does."""
        plan = {"ballast.dev/plan": f"{epoch} {node}"}
        return self.change_pod(name, annotations=plan, spec={"schedulingGates": []})

    def bind(self, name: str, node: str = "n1", cards: str | None = "0:500:40000") -> Self:
        """The Binding: node and cards in one write. `cards` None: a Binding without them."""
        notes = {} if cards is None else {"ballast.dev/cards": cards}
        return self.change_pod(name, annotations=notes, spec={"nodeName": node})

    def end(self, name: str, phase: str = "Succeeded") -> Self:
        """The pod ends."""
        return self.change_pod(name, status={"phase": phase})

    def delete(self, name: str) -> Self:
        """The pod is gone."""
        return self.write("Pod", name, None)

    def mark(self, name: str) -> Self:
        """The first write of an eviction; a killed etcd may leave it at that."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        return self.change_pod(name, status={"conditions": [condition]})

    def tell_to_leave(self, name: str, after_s: int = 0) -> Self:
        """Delete a pod with a grace period, so long after its mark: the second write of an
        eviction."""
        ends = {
            "deletionTimestamp": f"2026-01-01T00:00:{after_s + 30}Z",
            "deletionGracePeriodSeconds": 30,
        }
        return self.change_pod(name, metadata=ends)

    def evict(self, name: str, reason: str = "") -> Self:
        """Evict by the API, with our event when a reason is given."""
        self.mark(name).tell_to_leave(name)
        return self.event(name, reason) if reason else self

    def event(self, name: str, reason: str) -> Self:
        """An event regarding the pod."""
        self._n_events += 1
        event = {"involvedObject": {"kind": "Pod", "uid": f"uid-{name}"}, "reason": reason}
        return self.write("Event", f"{name}.{self._n_events}", event)

    # -- ledger ------------------------------------------------------------------------------

    def reserve(self, name: str, node: str = "n1", **more: Any) -> Self:
        """Add a row. More: cards, state, project, epoch, non_preemptible."""
        ledger = self._ledger(node)
        rows = [row for row in ledger["spec"].get("rows", []) if row["uid"] != f"uid-{name}"]
        rows.append(row_of(name, **more))
        return self._write_rows(node, rows)

    def keep(self, name: str, node: str, owner: str = "uid-job", **more: Any) -> Self:
        """Keep a place on `node` for the successor of a pod that runs elsewhere."""
        return self.reserve(name, node, state="nominated", keeps_for=owner, **more)

    def free(self, name: str, node: str = "n1") -> Self:
        """Remove the pod's row."""
        rows = [row for row in self._ledger(node)["spec"]["rows"] if row["uid"] != f"uid-{name}"]
        return self._write_rows(node, rows)

    def run(self, name: str, node: str = "n1", cards: str = "0:500:40000", **more: Any) -> Self:
        """The whole good way of a pod that exists: reserve, release, bind, mark bound."""
        shares = parse(cards)
        self.reserve(name, node, cards=shares, **more).release(name, node).bind(name, node, cards)
        return self.reserve(name, node, cards=shares, state="bound", **more)

    def _ledger(self, node: str) -> dict[str, Any]:
        return self._objects["GpuNode", node]

    def _write_rows(self, node: str, rows: list[dict[str, Any]]) -> Self:
        old = self._ledger(node)
        return self.write("GpuNode", node, old | {"spec": {"rows": rows}})


def row_of(name: str, **more: Any) -> dict[str, Any]:
    """A ledger row of pod `name` in namespace team."""
    row = {
        "uid": f"uid-{name}",
        "namespace": "team",
        "name": name,
        "project": more.get("project", "red"),
        "cards": more.get("cards", parse("0:500:40000")),
        "state": more.get("state", "reserved"),
        "epoch": more.get("epoch", EPOCH),
    }
    if more.get("keeps_for"):
        row["move"] = {"owner": more["keeps_for"]}
    return row | ({"nonPreemptible": True} if more.get("non_preemptible") else {})


def parse(cards: str) -> list[dict[str, int]]:
    """A cards annotation as the cards of a row."""
    parts = [part.split(":") for part in cards.split(",")]
    return [{"index": int(i), "milli": int(m), "memoryMiB": int(b)} for i, m, b in parts]


def queue_of(
    name: str, spec: dict[str, Any], quota: object, status: dict[str, object]
) -> dict[str, Any]:
    """A queue with a quota and a status in pool `default`."""
    pool = {"name": "default", "gpu": {"quota": quota}}
    obj: dict[str, Any] = {"metadata": {"name": name}, "spec": spec | {"nodePools": [pool]}}
    if status:
        obj["status"] = {"nodePools": [{"name": "default"} | status]}
    return obj
