"""The stage: a real control plane with all our programs, two teams, and a hostile tenant.

The tenant has the role `edit` in its two namespaces and may write PodGroups there, as users may.
There is no kubelet, so attacks on a node are not tried.
"""

import http.client
import itertools
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.attacks.attempt import (
    HARDENED,
    HOME,
    NODES,
    OURS,
    PODS,
    TENANT,
    VICTIMS,
    Attempt,
    Body,
    Tally,
    asking,
    half,
    pod,
)
from tests.attacks.judge import CLASSES, NARROW, Judge, changes
from tests.attacks.raw_client import MERGE, NAMES, Answer, RawClient
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.handles import Cluster, run_kubectl
from tests.support.controlplane.kubeconfig import write_kubeconfig
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import MANIFESTS, Installation, Program
from tests.support.webhook_config import is_admitting, register_webhooks

SEEN_S: Final = 90.0
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
CARDS_PER_NODE: Final = 2
#: The tenant's permanent pods: one runs, one is gated, one does not request GPUs.
BOUND, HELD, PLAIN = "bound", "held", "plain"
#: Manifests with the node agent's rights, without the agent.
AGENT_FILES: Final = ("namespace", "rbac", "policies")
AGENT_NAMESPACE: Final = "ballast-node"
_EVERY_VERB: Final = ["get", "list", "watch", "create", "update", "patch", "delete"]
_ACCOUNTS: Final = ("ballast-control", "ballast-scheduler", "ballast-webhooks")


class Stage:
    """Plays attempts and judges them."""

    def __init__(self, plane: ControlPlane, installation: Installation, webhooks: Program) -> None:
        self.plane = plane
        self.installation = installation
        self.webhooks = webhooks
        self.admin = RawClient(plane.kubeconfig)
        self.judge = Judge(self.admin)
        self.clients = {
            TENANT: RawClient(plane.kubeconfig_for("tenant", ("system:authenticated",)))
        }
        self.clients["nobody"] = RawClient(plane.kubeconfig, is_anonymous=True)
        self._names = itertools.count(1)

    def log_in(self) -> None:
        """Create the other clients that attempts use."""
        for account in _ACCOUNTS:
            kubeconfig = self.plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, account)
            self.clients[account] = RawClient(kubeconfig)
        node = self.plane.kubeconfig_for(f"system:node:{NODES[0]}", ("system:nodes",))
        self.clients["node"] = RawClient(node)
        self.clients["agent"] = self._agent()
        self.clients["tenant-token"] = RawClient(
            self.plane.kubeconfig_for_service_account(HOME, "default")
        )

    def _agent(self) -> RawClient:
        """The client of the first node's agent, with a token for its pod and node."""
        body = pod("agent", nodeName=NODES[0], serviceAccountName="ballast-agent")
        made = self.admin.send("POST", PODS.format(AGENT_NAMESPACE), body)
        assert made.is_stored, made
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "agent"}
        reference["uid"] = made.body["metadata"]["uid"]
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        path = f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/ballast-agent/token"
        asked = request | {"spec": {"boundObjectRef": reference}}
        token = self.admin.send("POST", path, asked).body["status"]["token"]
        file = self.plane.work / "agent.kubeconfig"
        authority = self.plane.authority.certificate
        return RawClient(str(write_kubeconfig(file, self.plane.url, authority, token)))

    # -- playing ------------------------------------------------------------------------------

    def play(
        self, attempts: Iterable[Attempt], tally: Tally, *, is_webhook_dead: bool = False
    ) -> list[str]:
        """Runs all attempts of a threat; returns a line for each that succeeded or changed others.

        Without the webhook, a refusal need not have the webhook's message. Changes by a refused
        attempt are found with the next stored one, or at the end.
        """
        wide = self.judge.picture()
        found: list[str] = []
        threat, n_stored = "", 0
        before = self.judge.picture(NARROW)
        for attempt in attempts:
            threat = f"{attempt.threat}+" if is_webhook_dead else attempt.threat
            answer = self.send(attempt)
            n_stored += answer.is_stored
            why = attempt.success(answer)
            if answer.is_stored:
                after = self.judge.picture(NARROW)
                if changed := changes(before, after):
                    why = f"{why}; changed {changed}"
                before = after
            if line := tally.note(threat, attempt.title, why):
                found.append(line)
            if not is_webhook_dead and (confusion := attempt.confusion(answer)):
                found.append(f"{threat} {attempt.title}: {confusion}")
        if n_stored:
            self.see_all_decided(_admitted if is_webhook_dead else half)
        late = [f"changed {each}" for each in changes(wide, self.judge.picture())]
        for why in (*late, *self.judge.gains()):
            line = f"{threat} after all attempts: {why}"
            tally.succeeded.append(line)
            found.append(line)
        if n_stored:
            self.clear()
        return found

    def send(self, attempt: Attempt) -> Answer:
        """Send the attempt's request as its actor."""
        body = attempt.body
        if callable(body):
            body = body(self.get(attempt.path))
        return self.clients[attempt.actor].send(
            attempt.method, attempt.path, body, attempt.media, attempt.as_user
        )

    def see_all_decided(self, make: Callable[[str], Body] = half) -> None:
        """Returns once a new pod of another team runs: all earlier pods are decided by then."""
        name = f"canary-{next(self._names)}"
        path = PODS.format("team-b")
        made = self.admin.send("POST", path, make(name))
        assert made.is_stored, made
        self.until(lambda: bool(self.get(f"{path}/{name}")["spec"].get("nodeName")), name)
        self.admin.send("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
        self.until(lambda: name not in self.holders(), f"{name}'s row to go")

    def clear(self) -> None:
        """Deletes all objects of the tenant except its permanent pods."""
        for namespace in (HOME, HARDENED):
            for path in (
                f"/apis/apps/v1/namespaces/{namespace}/deployments",
                f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
                f"/apis/apps/v1/namespaces/{namespace}/replicasets",
                f"/apis/batch/v1/namespaces/{namespace}/jobs",
                f"{OURS}/namespaces/{namespace}/gpupodgroups",
            ):
                self.admin.send("DELETE", path, {"propagationPolicy": "Background"})
            # Their names alone: some are as large as they can be. No items are null in such a list.
            listed = self.admin.send("GET", PODS.format(namespace), accept=NAMES).body["items"]
            for item in listed or ():
                name = item["metadata"]["name"]
                if name not in (BOUND, HELD, PLAIN):
                    path = f"{PODS.format(namespace)}/{name}"
                    self.admin.send("DELETE", path, {"gracePeriodSeconds": 0})
        kept = {BOUND}
        self.until(lambda: self.holders(HOME, HARDENED) <= kept, "the tenant's rows to go")

    # -- looking ------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """An object as administrator."""
        return self.admin.send("GET", path).body

    def holders(self, *namespaces: str) -> set[str]:
        """Names of pods with a row, in these namespaces or in all."""
        return {
            row["name"]
            for node in self.get(f"{OURS}/gpunodes")["items"]
            for row in node["spec"].get("rows") or ()
            if not namespaces or row["namespace"] in namespaces
        }

    def until(self, is_met: Callable[[], bool], what: str) -> None:
        """Returns once the condition holds; after the timeout, AssertionError with its name."""
        deadline = time.monotonic() + SEEN_S
        while not is_met():
            assert time.monotonic() < deadline, f"not seen in {SEEN_S:g} s: {what}"
            time.sleep(0.05)

    def ask_webhook(self, path: str, body: bytes) -> tuple[int, str]:
        """The answer at the webhooks' port to a client other than the API server."""
        tls = ssl.create_default_context(cafile=str(self.webhook_ca))
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.webhooks.port, timeout=10, context=tls
        )
        try:
            connection.request("POST" if body else "GET", path, body or None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def metrics(self, program: Program) -> str:
        """The program's metrics."""
        if program is self.webhooks:
            return self.ask_webhook("/metrics", b"")[1]
        connection = http.client.HTTPConnection(LOOPBACK, program.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    @property
    def webhook_ca(self) -> Path:
        """The CA that signed the webhooks' certificate."""
        return self.plane.work / "webhook-certs" / "ca.crt"

    # -- making -------------------------------------------------------------------------------

    def furnish(self) -> None:
        """Apply queues, rights, policies and webhooks, and start the pods of the teams and
        tenant."""
        self._make_queues()
        self._make_rights()
        run_kubectl(self.plane, "apply", "--server-side", "-k", str(MANIFESTS / "policies"))
        agent = [f"--filename={MANIFESTS / 'gpu-shim' / name}.yaml" for name in AGENT_FILES]
        run_kubectl(self.plane, "apply", "--server-side", *agent)
        self.log_in()
        self._call_webhooks()
        for namespace, body in _standing_pods():
            made = self.admin.send("POST", PODS.format(namespace), body)
            assert made.is_stored, made
        self.until(lambda: {"a-1", "a-2", "fraction", "solo", BOUND} <= self.holders(), "rows")
        self.until(self._is_in_force, "every policy in force")
        self.until(self._is_at_rest, "everything bound")

    def _make_queues(self) -> None:
        figures = {"name": "default"}
        queues: list[tuple[str, str, Body]] = [
            ("gpudepartments", "research", {"nodePools": [figures | {"gpu": {"quota": 6}}]}),
        ]
        shares: tuple[tuple[str, list[str], Body], ...] = (
            ("team-a", ["team-a"], {"quota": 3}),
            ("team-b", ["team-b"], {"quota": 2}),
            ("mallory", [HOME, HARDENED], {"quota": 1, "limit": 1}),
        )
        for name, namespaces, gpu in shares:
            spec: Body = {"department": "research", "namespaces": namespaces}
            spec["nodePools"] = [figures | {"gpu": gpu}]
            if name == "mallory":
                spec["allowedPriorityClasses"] = list(CLASSES)
                # Attempts must not evict the tenant's permanent pods.
                spec["minRuntime"] = {"reclaimSeconds": 86_400, "preemptSeconds": 86_400}
            queues.append(("gpuprojects", name, spec))
        for plural, name, spec in queues:
            kind = {"gpudepartments": "GpuDepartment", "gpuprojects": "GpuProject"}[plural]
            body = {"apiVersion": "ballast.dev/v1alpha1", "kind": kind, "spec": spec}
            self._post(f"{OURS}/{plural}", body | {"metadata": {"name": name}})
        for name, value in (("vip", 1_000_000_000), ("below-all", -1_000)):
            made: Body = {"metadata": {"name": name}, "value": value}
            self._post("/apis/scheduling.k8s.io/v1/priorityclasses", made)

    def _make_rights(self) -> None:
        for namespace in (*VICTIMS, HOME, HARDENED):
            self.plane.make_namespace(namespace)
        label = {"pod-security.kubernetes.io/enforce": "baseline"}
        patch = {"metadata": {"labels": label}}
        self.admin.send("PATCH", f"/api/v1/namespaces/{HARDENED}", patch, MERGE)
        rules: list[Body] = [
            {"apiGroups": ["ballast.dev"], "resources": ["gpupodgroups"], "verbs": _EVERY_VERB},
            # Rights for `kubectl debug` and for in-place resizes.
            {"apiGroups": [""], "resources": ["pods/ephemeralcontainers", "pods/resize"],
             "verbs": ["patch", "update"]},
        ]  # fmt: skip
        for namespace in (HOME, HARDENED):
            folder = f"{RBAC}/namespaces/{namespace}"
            self._post(f"{folder}/roles", {"metadata": {"name": "more"}, "rules": rules})
            for name, kind in (("edit", "ClusterRole"), ("more", "Role")):
                reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
                subject = {"kind": "User", "name": "tenant", "apiGroup": reference["apiGroup"]}
                binding = {"roleRef": reference, "subjects": [subject]}
                self._post(f"{folder}/rolebindings", binding | {"metadata": {"name": name}})
        for namespace in (*VICTIMS, SYSTEM_NAMESPACE):
            secret = {"metadata": {"name": "treasure"}, "stringData": {"word": "sesame"}}
            self._post(f"/api/v1/namespaces/{namespace}/secrets", secret)

    def _call_webhooks(self) -> None:
        admin = self.plane.admin
        register_webhooks(admin, self.webhooks.port, self.webhook_ca.read_bytes())
        self.until(lambda: is_admitting(admin, HOME), "a pod with the gate")

    def _post(self, path: str, body: Body) -> None:
        answer = self.admin.send("POST", path, body)
        assert answer.is_stored, (path, answer)

    def _is_in_force(self) -> bool:
        """Whether the API server enforces each of the policies."""
        note = {"metadata": {"annotations": {"ballast.dev/plan": "1 n"}}}
        path = f"{PODS.format(HOME)}/{HELD}"
        patched = self.admin.send("PATCH", f"{path}?dryRun=All", note, MERGE)
        placed = self.admin.send(
            "POST", f"{PODS.format(HOME)}?dryRun=All", half("probe", nodeName=NODES[0])
        )
        bound = self.admin.send(
            "POST",
            f"{path}/binding?dryRun=All",
            {"metadata": {"name": HELD, "annotations": {"ballast.dev/cards": "0:1:1"}},
             "target": {"kind": "Node", "name": NODES[0]}},
        )  # fmt: skip
        mine = self.clients["agent"].send(
            "PATCH", f"{OURS}/gpunodes/{NODES[1]}/status?dryRun=All", {"status": {}}, MERGE
        )
        refused = (patched, placed, bound, mine)
        return all("ValidatingAdmissionPolicy" in each.words for each in refused)

    def _is_at_rest(self) -> bool:
        items = [item for each in VICTIMS for item in self.get(PODS.format(each))["items"]]
        running = [item for item in items if item["metadata"]["name"] != "waiting"]
        states = {
            row["name"]: row["state"]
            for node in self.get(f"{OURS}/gpunodes")["items"]
            for row in node["spec"].get("rows") or ()
        }
        is_bound = "nominated" not in states.values() and len(states) == len(running) + 1
        is_known = "large" in str(self.get(f"{OURS}/namespaces/team-b/gpupodgroups"))
        return (
            is_bound
            and is_known
            and all(item["status"].get("phase") == "Running" for item in running)
        )


def _admitted(name: str) -> Body:
    """A pod of half a card as after admission, for the time without the webhook."""
    return half(
        name,
        labels={"ballast.dev/project": "team-b"},
        containers=[asking("ballast.dev/gpu-milli", "500")],
        schedulerName="ballast-scheduler",
        schedulingGates=[{"name": "ballast.dev/admission"}],
    )


def _standing_pods() -> Iterator[tuple[str, Body]]:
    gang = {"labels": {"ballast.dev/pod-group": "gang"}, "notes": {"ballast.dev/min-member": "2"}}
    for name in ("a-1", "a-2"):
        yield "team-a", pod(name, containers=[asking("nvidia.com/gpu")], **gang)
    yield "team-a", half("fraction")
    yield "team-b", pod("solo", containers=[asking("nvidia.com/gpu")])
    large = {
        "labels": {"ballast.dev/pod-group": "large"},
        "notes": {"ballast.dev/min-member": "64", "gpu-fraction": "0.5"},
    }
    yield "team-b", pod("waiting", **large)
    yield HOME, pod(BOUND, notes={"gpu-fraction": "0.25"})
    incomplete = {
        "labels": {"ballast.dev/pod-group": "mine"},
        "notes": {"ballast.dev/min-member": "4", "gpu-fraction": "0.25"},
    }
    yield HOME, pod(HELD, **incomplete)
    yield HOME, pod(PLAIN)


@contextmanager
def opened(cluster: Cluster) -> Iterator[Stage]:
    """The prepared stage, on an empty cluster."""
    plane = cluster.control_plane
    installation = Installation(plane)
    certs = plane.work / "webhook-certs"
    certs.mkdir(exist_ok=True)
    webhooks = installation.webhooks(certs)
    webhooks.start_unready()
    stage = Stage(plane, installation, webhooks)
    try:
        plane.start_kwok()
        cluster.add_gpu_nodes(len(NODES), CARDS_PER_NODE)
        installation.start()
        webhooks.wait_ready()
        stage.furnish()
        yield stage
    finally:
        installation.stop()
        webhooks.kill()
