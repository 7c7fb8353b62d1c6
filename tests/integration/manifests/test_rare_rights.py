"""Uses rights that only rare events need, so that the final comparison of rights sees them."""

import asyncio
import base64
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from extender.api.events import Upserted
from extender.api.reasons import Reason
from extender.cycle.keepers.own_groups import KEPT_S, OwnGroups
from extender.cycle.pod_events import PodEvents
from extender.kube.client import Client
from extender.kube.recorder import EventRates, EventRecorder, ObjectRef
from extender.kube.resources import POD_GROUPS
from extender.ledger.writer import Ledger
from extender.state.cluster import ClusterState
from tests.integration.manifests.one_project import GROUPS, SEEN_S
from tests.support import workloads
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Api, Cluster, wait_for
from tests.support.installation import MANIFESTS, Installation, Program
from tests.support.rights import used
from tests.support.sight import until
from tests.support.webhook_config import register_webhooks
from webhooks import certs
from webhooks.owners.table import TABLE, OwnerKind

pytestmark = pytest.mark.controlplane

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
#: The node agent's account and rights.
AGENT = [f"--filename={MANIFESTS}/gpu-shim/{name}.yaml" for name in ("namespace", "rbac")]
KINDS = [each for each in TABLE if each.plural]


async def _login(api: Api, account: str, program: str) -> Client:
    user = f"system:serviceaccount:{account}"
    kubeconfig = api.control_plane.kubeconfig_for(user, GROUPS)
    return await Client.connect(kubeconfig, user_agent=program)


@pytest.mark.parametrize(
    ("account", "program"),
    [
        ("ballast-system:ballast-control", "ballast-control"),
        ("ballast-system:ballast-scheduler", "ballast-serve"),
    ],
)
async def test_row_is_read_live_where_the_cache_does_not_have_it(
    api: Api, account: str, program: str
) -> None:
    body = {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": "n"},
        "spec": {"rows": []},
    }
    api.control_plane.admin.post(f"{workloads.API}/gpunodes", body)
    async with await _login(api, account, program) as client:
        ledger = Ledger(client, lambda _: None)
        found = await ledger.change("n", lambda current: current.spec.rows)
    assert getattr(found, "metadata", None) is not None


@pytest.mark.parametrize(
    ("account", "program"),
    [
        ("ballast-system:ballast-control", "ballast-control"),
        ("ballast-node:ballast-agent", "ballast-agent"),
    ],
)
async def test_event_that_comes_again_is_counted_up(api: Api, account: str, program: str) -> None:
    api.kubectl("apply", "--server-side", *AGENT)
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    pod = ObjectRef("v1", "Pod", "p", api.namespace, "uid-1")

    def told() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.control_plane.admin.get(path)["items"]
        return found

    async with await _login(api, account, program) as client:
        recorder = EventRecorder(client, program, EventRates(series_s=0.0))
        running = asyncio.create_task(recorder.run())
        recorder.record(pod, Reason.OVER_FAIR_SHARE, "why")
        await until(lambda: _is(len(told()) == 1), SEEN_S, lambda: "an event")
        recorder.record(pod, Reason.OVER_FAIR_SHARE, "why")
        await until(lambda: _is("series" in told()[0]), SEEN_S, lambda: "its count")
        running.cancel()


async def _is(answer: bool) -> bool:
    return answer


async def test_group_of_the_controllers_goes_when_it_has_had_no_pod_for_long(api: Api) -> None:
    path = f"{workloads.API}/namespaces/{api.namespace}/gpupodgroups"
    body = workloads.pod_group("over", api.namespace, 2)
    body["metadata"] |= {
        "labels": {names.LABEL_MANAGED_BY: names.CONTROLLER_NAME},
        "annotations": {names.ANNOTATION_MIN_MEMBER: "2"},
    }
    api.control_plane.admin.post(path, body)
    async with await _login(api, "ballast-system:ballast-control", "ballast-control") as client:
        state = ClusterState()
        for group in (await client.list_all(POD_GROUPS)).items:
            state.apply(Upserted(group))
        groups = OwnGroups(client, state, PodEvents(state, EventRecorder(client, "control")))
        for now in (0.0, KEPT_S):
            assert await groups.keep(state.snapshot(0), (), now)
    assert not api.control_plane.admin.has(f"{path}/over")


def test_pool_has_a_status_and_a_node_that_leaves_leaves_the_ledger(cluster: Cluster) -> None:
    admin = cluster.control_plane.admin
    pool = {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuNodePool",
        "metadata": {"name": "spare"},
        "spec": {"nodeSelector": {"pool": "spare"}},
    }
    admin.post(f"{workloads.API}/gpunodepools", pool)
    (node,) = cluster.add_gpu_nodes(1, 2)
    installation = Installation(cluster.control_plane)
    try:
        installation.control.start()
        path = f"{workloads.API}/gpunodes/{node}"
        wait_for(lambda: admin.has(path), SEEN_S, "the node in the ledger")
        spare = f"{workloads.API}/gpunodepools/spare"
        wait_for(lambda: "status" in admin.get(spare), SEEN_S, "the pool's status")
        admin.delete(f"/api/v1/nodes/{node}")
        wait_for(lambda: not admin.has(path), SEEN_S, "the node gone from the ledger")
    finally:
        installation.stop()


@pytest.fixture
def webhooks(api: Api, tmp_path: Path) -> Iterator[Program]:
    """The webhooks with a certificate of their own keeping, called for every GPU pod."""
    admin = api.control_plane.admin
    admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", 2))
    body = workloads.project("vision", "research", api.namespace, 2)
    admin.post(f"{workloads.API}/gpuprojects", body)
    program = Installation(api.control_plane).webhooks(tmp_path, "--secret=ballast-webhooks-tls")
    register_webhooks(admin, program.port, certs.make().ca)
    try:
        program.start()
        yield program
    finally:
        program.kill()


def test_owner_of_every_known_kind_is_read(api: Api, webhooks: Program) -> None:
    assert webhooks.is_alive
    for kind in KINDS:
        wait_for(partial(_is_gated, api, kind), SEEN_S, f"a gated pod of a {kind.kind}")
    seen = {use.right.resource for use in used(api.control_plane.logs) if use.right.verb == "get"}
    assert {kind.plural for kind in KINDS} <= seen


def test_both_configurations_are_given_the_authority(api: Api, webhooks: Program) -> None:
    assert webhooks.is_alive
    secret = "/api/v1/namespaces/ballast-system/secrets/ballast-webhooks-tls"
    trusted = base64.b64decode(api.control_plane.admin.get(secret)["data"]["ca.crt"])

    def bundles(kind: str) -> set[bytes]:
        found = api.control_plane.admin.get(f"{REGISTRATION}/{kind}/ballast-webhooks")
        named = {each["clientConfig"]["caBundle"] for each in found["webhooks"]}
        return {base64.b64decode(each) for each in named}

    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    wait_for(lambda: all(bundles(kind) == {trusted} for kind in kinds), SEEN_S, "its authority")


def _is_gated(api: Api, kind: OwnerKind) -> bool:
    """Whether a pod that names an owner of this kind, which is not there, is held all the same."""
    owner = {
        "apiVersion": f"{kind.api_group}/{kind.version}",
        "kind": kind.kind,
        "name": "gone",
        "uid": "0",
        "controller": True,
    }
    pod = workloads.bare_pod("p", api.namespace, 500, gated=False)
    # The index is what makes a Job's pods need one another, so that the Job is read.
    labels = {"batch.kubernetes.io/job-completion-index": "0"}
    notes = {"gpu-fraction": "0.5"}
    pod["metadata"] |= {"ownerReferences": [owner], "labels": labels, "annotations": notes}
    path = f"/api/v1/namespaces/{api.namespace}/pods?dryRun=All"
    try:
        return "schedulingGates" in api.control_plane.admin.post(path, pod)["spec"]
    except ApiRefusedError:
        return False  # the API server does not know the webhooks' authority yet
