import asyncio
from pathlib import Path

import pytest
from msgspec import Raw

from extender.kube import errors
from extender.kube.client import Client, Evicted, EvictionRefused, Gone
from extender.kube.resources import (
    GPU_NODES,
    NAMESPACES,
    NODE_POOLS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
)
from tests.integration.kube.objects import disruption_budget, node, pod, pool
from tests.support.controlplane.handles import Api

LABEL: list[dict[str, object]] = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]


async def test_an_object_is_created_read_replaced_and_deleted(client: Client) -> None:
    made = await client.create(NODE_POOLS, pool("p"))
    read = await client.get(NODE_POOLS, "p")
    assert read == made
    body = pool("p", tier="gold")
    body["metadata"]["resourceVersion"] = made.metadata.resource_version
    replaced = await client.replace(NODE_POOLS, body, "p")
    assert replaced.metadata.label("tier") == "gold"
    with pytest.raises(errors.Conflict):
        await client.replace(NODE_POOLS, body, "p")
    await client.delete(NODE_POOLS, "p", uid=made.metadata.uid)
    with pytest.raises(errors.NotFound):
        await client.get(NODE_POOLS, "p")


async def test_a_second_create_of_a_name_already_exists(client: Client) -> None:
    await client.create(NODE_POOLS, pool("p"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(NODE_POOLS, pool("p"))


async def test_what_the_schema_forbids_is_refused_with_its_words(client: Client) -> None:
    body = pool("p") | {"spec": {"policy": "whatever"}}
    with pytest.raises(errors.RequestRefused, match=r"spec\.policy") as caught:
        await client.create(NODE_POOLS, body)
    assert caught.value.status == 422


async def test_delete_with_another_uid_is_a_conflict(client: Client) -> None:
    await client.create(NODE_POOLS, pool("p"))
    with pytest.raises(errors.Conflict):
        await client.delete(NODE_POOLS, "p", uid="00000000-0000-0000-0000-000000000000")


async def test_pages_join_to_the_whole_list(client: Client) -> None:
    await asyncio.gather(*(client.create(NODE_POOLS, pool(f"p-{i}")) for i in range(7)))
    first = await client.list_page(NODE_POOLS, limit=3)
    assert len(first.items) == 3
    rest = await client.list_page(NODE_POOLS, limit=500, continue_token=first.continue_token)
    assert rest.resource_version == first.resource_version
    everything = await client.list_all(NODE_POOLS)
    names = [p.metadata.name for p in everything.items]
    assert names == [p.metadata.name for p in first.items + rest.items] == sorted(names)


async def test_a_continue_token_from_before_a_compaction_is_expired(
    api: Api, client: Client
) -> None:
    for i in range(3):
        await client.create(NODE_POOLS, pool(f"p-{i}"))
    first = await client.list_page(NODE_POOLS, limit=1)
    await client.delete(NODE_POOLS, "p-2")
    api.control_plane.compact_etcd()
    api.control_plane.restart("kube-apiserver")  # its cache still holds the old moment
    with pytest.raises(errors.Expired):
        await client.list_page(NODE_POOLS, limit=1, continue_token=first.continue_token)


async def test_lists_are_narrowed_by_labels_and_fields(api: Api, client: Client) -> None:
    await client.create(PODS, pod("a", labels={"app": "x"}), api.namespace)
    await client.create(PODS, pod("b"), api.namespace)
    by_label = await client.list_all(PODS, label_selector="app in (x, y)")
    by_field = await client.list_all(
        PODS, namespace=api.namespace, field_selector="metadata.name=b,spec.nodeName="
    )
    assert [p.metadata.name for p in by_label.items] == ["a"]
    assert [p.metadata.name for p in by_field.items] == ["b"]


# -- compare and swap ------------------------------------------------------------------------------


async def test_a_json_patch_lands_on_the_version_it_names(api: Api, client: Client) -> None:
    made = await client.create(PODS, pod("a"), api.namespace)
    patched = await client.json_patch(
        PODS, "a", LABEL, api.namespace, resource_version=made.metadata.resource_version
    )
    assert patched.metadata.label("a") == "b"


async def test_a_json_patch_for_an_older_version_conflicts_and_changes_nothing(
    api: Api, client: Client
) -> None:
    made = await client.create(PODS, pod("a"), api.namespace)
    await client.merge_patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}}, api.namespace)
    with pytest.raises(errors.Conflict):
        await client.json_patch(
            PODS, "a", LABEL, api.namespace, resource_version=made.metadata.resource_version
        )
    assert (await client.get(PODS, "a", api.namespace)).metadata.labels == {"x": "1"}


async def test_a_test_operation_refuses_an_older_version_as_invalid_not_as_conflict(
    api: Api, client: Client
) -> None:
    made = await client.create(PODS, pod("a"), api.namespace)
    version = {"path": "/metadata/resourceVersion", "value": made.metadata.resource_version}
    current: list[dict[str, object]] = [{"op": "test", **version}, *LABEL]
    await client.json_patch(PODS, "a", current, api.namespace)
    with pytest.raises(errors.RequestRefused) as caught:
        await client.json_patch(PODS, "a", current, api.namespace)
    assert caught.value.status == 422


async def test_a_merge_patch_with_a_version_compares_and_swaps(client: Client) -> None:
    made = await client.create(GPU_NODES, {"metadata": {"name": "n"}, "spec": {"rows": []}})
    patch = {"metadata": {"resourceVersion": made.metadata.resource_version, "labels": {"a": "b"}}}
    await client.merge_patch(GPU_NODES, "n", patch)
    with pytest.raises(errors.Conflict):
        await client.merge_patch(GPU_NODES, "n", patch)


async def test_of_many_writers_with_one_version_one_wins(client: Client) -> None:
    made = await client.create(GPU_NODES, {"metadata": {"name": "n"}, "spec": {"rows": []}})

    async def write(i: int) -> bool:
        metadata = {"resourceVersion": made.metadata.resource_version, "labels": {"w": str(i)}}
        try:
            await client.merge_patch(GPU_NODES, "n", {"metadata": metadata})
        except errors.Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(i) for i in range(20)))) == 1


async def test_apply_owns_fields_and_keeps_those_of_others(client: Client) -> None:
    await client.create(NODE_POOLS, pool("p", theirs="1"))
    applied = await client.apply(NODE_POOLS, "p", pool("p", ours="2"))
    assert applied.metadata.labels == {"theirs": "1", "ours": "2"}


async def test_status_is_patched_as_a_subresource(client: Client) -> None:
    await client.create(NODES, node("n"))
    capacity = {"ballast.dev/gpu-milli": "8000"}
    patch = {"status": {"capacity": capacity, "allocatable": capacity}}
    patched = await client.merge_patch(NODES, "n", patch, subresource="status")
    assert patched.status.capacity == {"ballast.dev/gpu-milli": "8k"}


# -- binding ---------------------------------------------------------------------------------------


async def test_a_binding_sets_node_and_annotations_in_one_write(api: Api, client: Client) -> None:
    await client.create(NODES, node("n"))
    made = await client.create(PODS, pod("a", annotations={"kept": "yes"}), api.namespace)
    await client.bind(
        api.namespace, "a", uid=made.metadata.uid, node="n",
        annotations={"ballast.dev/cards": "0:500:100"},
        resource_version=made.metadata.resource_version,
    )  # fmt: skip
    bound = await client.get(PODS, "a", api.namespace)
    assert bound.spec.node_name == "n"
    assert bound.metadata.annotations == {"kept": "yes", "ballast.dev/cards": "0:500:100"}


async def test_a_binding_for_an_older_version_conflicts_and_changes_nothing(
    api: Api, client: Client
) -> None:
    await client.create(NODES, node("n"))
    made = await client.create(PODS, pod("a"), api.namespace)
    await client.json_patch(PODS, "a", LABEL, api.namespace)
    with pytest.raises(errors.Conflict):
        await client.bind(
            api.namespace, "a", uid=made.metadata.uid, node="n", annotations={"x": "y"},
            resource_version=made.metadata.resource_version,
        )  # fmt: skip
    pod_now = await client.get(PODS, "a", api.namespace)
    assert pod_now.spec.node_name == ""
    assert pod_now.metadata.annotations is None


async def test_a_binding_for_another_uid_conflicts(api: Api, client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("a"), api.namespace)
    with pytest.raises(errors.Conflict):
        await client.bind(
            api.namespace, "a", uid="00000000-0000-0000-0000-000000000000", node="n",
            annotations={},
        )  # fmt: skip


async def test_a_second_binding_conflicts(api: Api, client: Client) -> None:
    await client.create(NODES, node("n"))
    uid = (await client.create(PODS, pod("a"), api.namespace)).metadata.uid
    await client.bind(api.namespace, "a", uid=uid, node="n", annotations={})
    with pytest.raises(errors.Conflict):
        await client.bind(api.namespace, "a", uid=uid, node="n", annotations={})


# -- eviction --------------------------------------------------------------------------------------


async def test_an_eviction_deletes_exactly_the_pod_of_that_uid(api: Api, client: Client) -> None:
    made = await client.create(PODS, pod("a"), api.namespace)
    other = await client.evict(api.namespace, "a", uid="00000000-0000-0000-0000-000000000000")
    assert other == Gone()
    assert (await client.get(PODS, "a", api.namespace)).metadata.uid == made.metadata.uid
    assert await client.evict(api.namespace, "a", uid=made.metadata.uid) == Evicted()
    assert await client.evict(api.namespace, "a", uid=made.metadata.uid) == Gone()


async def test_a_disruption_budget_refuses_the_eviction(api: Api, client: Client) -> None:
    uid = await _pod_under_budgets(api, client, 1)
    answer = await client.evict(api.namespace, "a", uid=uid)
    assert isinstance(answer, EvictionRefused)
    assert "disruption budget" in answer.message
    assert (await client.get(PODS, "a", api.namespace)).metadata.deletion_timestamp is None


async def test_a_pod_with_two_disruption_budgets_is_refused_and_not_retried(
    api: Api, client: Client
) -> None:
    uid = await _pod_under_budgets(api, client, 2)
    assert isinstance(await client.evict(api.namespace, "a", uid=uid), EvictionRefused)


async def _pod_under_budgets(api: Api, client: Client, n: int) -> str:
    """The UID of a bound pod that these budgets protect: an unbound one may always be evicted."""
    await client.create(NODES, node("n"))
    uid = (await client.create(PODS, pod("a", labels={"app": "a"}), api.namespace)).metadata.uid
    await client.bind(api.namespace, "a", uid=uid, node="n", annotations={})
    running = {"status": {"phase": "Running"}}
    await client.merge_patch(PODS, "a", running, api.namespace, subresource="status")
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    for i in range(n):
        await client.request("POST", path, body=disruption_budget(f"b-{i}", "a"))
    return uid


# -- the fence, credentials ------------------------------------------------------------------------


async def test_the_fence_stops_every_kind_of_write_and_no_read(api: Api, client: Client) -> None:
    uid = (await client.create(PODS, pod("a"), api.namespace)).metadata.uid

    def stop() -> None:
        raise errors.NotLeading("stopped")

    client.before_write = stop
    writes = (
        client.create(NODE_POOLS, pool("p")),
        client.replace(NODE_POOLS, pool("p"), "p"),
        client.merge_patch(PODS, "a", {}, api.namespace),
        client.json_patch(PODS, "a", LABEL, api.namespace),
        client.apply(NODE_POOLS, "p", pool("p")),
        client.delete(PODS, "a", api.namespace),
        client.bind(api.namespace, "a", uid=uid, node="n", annotations={}),
        client.evict(api.namespace, "a", uid=uid),
        client.request("POST", "/api/v1/namespaces", body={}),
    )
    for write in writes:
        with pytest.raises(errors.NotLeading):
            await write
    read = await client.get(PODS, "a", api.namespace)
    assert (read.metadata.labels, read.metadata.deletion_timestamp) == (None, None)


async def test_a_forbidden_request_is_refused(api: Api) -> None:
    nobody = api.control_plane.kubeconfig_for("nobody")
    async with await Client.connect(nobody) as client:
        with pytest.raises(errors.RequestRefused) as caught:
            await client.list_all(NAMESPACES)
    assert caught.value.status == 403


async def test_a_service_account_token_is_sent(api: Api) -> None:
    path = api.control_plane.kubeconfig_for_service_account(api.namespace, "default")
    async with await Client.connect(path) as client:
        with pytest.raises(errors.RequestRefused, match=f"{api.namespace}:default"):
            await client.list_all(NAMESPACES)


async def test_without_any_configuration_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.Misconfigured, match="kubeconfig"):
        await Client.connect()
    with pytest.raises(errors.Misconfigured, match="/nowhere"):
        await Client.connect("/nowhere")


async def test_a_rotated_token_is_taken_over_without_a_restart(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Path(
        api.control_plane.kubeconfig_for_service_account(api.namespace, "default")
    ).read_text()
    path = tmp_path / "kubeconfig"
    path.write_text(good.replace('"token": "', '"token": "x'))
    monkeypatch.setattr("extender.kube.connection.RENEW_EVERY_S", 0.0)
    async with await Client.connect(str(path)) as client:
        with pytest.raises(errors.Unauthorized):
            await client.list_all(PODS)
        path.write_text(good)
        with pytest.raises(errors.RequestRefused):
            await client.list_all(PODS)  # known now, and not allowed to


async def test_the_api_server_stores_parameters_of_any_depth_and_they_hide_nothing(
    client: Client, api: Api
) -> None:
    depth = 4900  # within the 10 KiB that parameters may have
    deep = Raw(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
    for name, parameters in (("deep", deep), ("flat", Raw(b'{"a":1}'))):
        config = {"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
        asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        body = {
            "metadata": {"name": name, "namespace": api.namespace},
            "spec": {"devices": {"requests": [asked], "config": [config]}},
        }
        await client.create(RESOURCE_CLAIMS, body, api.namespace)
    listed = await client.list_all(RESOURCE_CLAIMS, namespace=api.namespace)
    assert [claim.metadata.name for claim in listed.items] == ["deep", "flat"]
