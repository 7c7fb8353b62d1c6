"""The stage of the fault tests: a small cluster with room for a gang of eight and some halves."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extender.kube.client import Client
from extender.kube.resources import LEASES
from tests.support import workloads
from tests.support.controlplane.handles import Cluster
from tests.support.installation import Installation, Program
from tests.support.sight import Sight, look, until

GANG = 8
N_NODES = 4
#: Sixteen cards: eight for the gang, eight for sixteen halves.
CARDS_A_NODE = 4
LEASE_S = 3.0
DONE_S = 90.0


class Scene:
    """A running installation with one project; everything it waits for has a deadline."""

    def __init__(self, cluster: Cluster, installation: Installation, client: Client) -> None:
        self.cluster = cluster
        self.plane = cluster.control_plane
        self.installation = installation
        self._client = client
        self._last = Sight()

    @classmethod
    @asynccontextmanager
    async def open(cls, cluster: Cluster) -> AsyncIterator["Scene"]:
        """Start everything; end our programs afterwards."""
        installation = Installation(cluster.control_plane, lease_s=LEASE_S)
        admin = cluster.control_plane.admin
        admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", 16))
        admin.post(
            f"{workloads.API}/gpuprojects",
            workloads.project("team-a", "research", cluster.namespace, 16),
        )
        try:
            await asyncio.to_thread(cluster.add_gpu_nodes, N_NODES, CARDS_A_NODE)
            await asyncio.to_thread(installation.start)
            async with await cluster.client() as client:
                scene = cls(cluster, installation, client)
                await scene._wait_ledgers()
                yield scene
        finally:
            installation.stop()

    # -- acts --------------------------------------------------------------------------------

    def submit_gang(self) -> None:
        """A Job of eight whole-GPU pods that run together or not at all."""
        namespace = self.cluster.namespace
        self.plane.admin.post(
            f"{workloads.API}/namespaces/{namespace}/gpupodgroups",
            workloads.pod_group("gang", namespace, GANG),
        )
        self._submit(workloads.job("gang", namespace, GANG, 1000, group="gang"))

    def submit_singles(self, n_pods: int, name: str = "single") -> None:
        """Half-GPU pods on their own."""
        self._submit(workloads.job(name, self.cluster.namespace, n_pods, 500))

    async def fragment(self) -> int:
        """Pods of one GPU so that every node has half of its cards free; returns how many run."""
        namespace = self.cluster.namespace
        for number in range(N_NODES * CARDS_A_NODE):
            self._submit(workloads.job(f"small-{number}", namespace, 1, 1000))
        await self.wait_bound(N_NODES * CARDS_A_NODE)
        n_taken: Counter[str] = Counter()
        ended: list[str] = []
        for pod in self.plane.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            node = pod["spec"]["nodeName"]
            n_taken[node] += 1
            if n_taken[node] <= CARDS_A_NODE // 2:
                ended.append(pod["metadata"]["labels"]["job-name"])
        self.cluster.kubectl("delete", "job", *ended, "-n", namespace, "--wait=false")
        n_left = N_NODES * CARDS_A_NODE // 2
        await self.expect_bound_rows_match(n_left)
        return n_left

    def submit_big(self) -> None:
        """A pod that wants a whole node."""
        milli = 1000 * CARDS_A_NODE
        self._submit(workloads.job("big", self.cluster.namespace, 1, milli))

    async def restart_control(self, failpoint: str) -> None:
        """Start the controller anew with a failpoint armed."""
        self.installation.control.end()
        await asyncio.to_thread(self.installation.control.start, failpoint)

    async def restart_serve(self, failpoint: str) -> None:
        """Start the extender anew with a failpoint armed."""
        self.installation.serve.end()
        await asyncio.to_thread(self.installation.serve.start, failpoint)

    # -- waits -------------------------------------------------------------------------------

    async def wait_dead(self, program: Program) -> None:
        """Until the program was ended by its failpoint: a fault that never came is a failure."""

        async def is_dead() -> bool:
            return not program.is_alive

        await until(is_dead, DONE_S, lambda: f"{program.name} reached its failpoint")

    async def wait_bound(self, n_pods: int) -> None:
        """Until at least so many pods are bound."""
        await self._until(lambda sight: len(sight.bound) >= n_pods, f"{n_pods} bound pods")

    async def wait_rows(self, n_rows: int) -> None:
        """Until at least so many rows are in the ledger."""
        await self._until(lambda sight: sight.n_rows >= n_rows, f"{n_rows} rows")

    async def wait_other_leads(self, identity: str) -> None:
        """Until the Lease is that replica's."""

        async def leads() -> bool:
            lease = await self._client.get(LEASES, "ballast-control", "ballast-system")
            return lease.spec.holder_identity == identity

        await until(leads, DONE_S, lambda: f"{identity} leads")

    async def expect_whole_gang(self) -> None:
        """Eight bound pods, eight rows that hold their cards, nothing else."""
        await self._until(lambda sight: sight.is_whole(GANG), "a whole gang")

    async def expect_bound_rows_match(self, n_pods: int) -> None:
        """So many bound pods, each with one row that holds its cards, and no row besides."""
        await self._until(lambda sight: sight.is_whole(n_pods), f"{n_pods} pods with their rows")

    async def _until(self, is_met, what: str) -> None:  # type: ignore[no-untyped-def]
        async def is_seen() -> bool:
            self._last = await look(self._client, self.cluster.namespace)
            return bool(is_met(self._last))

        await until(is_seen, DONE_S, lambda: f"{what}; last seen {self._last}")

    async def _wait_ledgers(self) -> None:
        async def are_there() -> bool:
            path = "/apis/ballast.dev/v1alpha1/gpunodes"
            items = (await asyncio.to_thread(self.plane.admin.get, path))["items"]
            return len([each for each in items if each.get("status", {}).get("devices")]) == N_NODES

        await until(are_there, DONE_S, lambda: "a GpuNode for every node")

    def _submit(self, manifest: workloads.Manifest) -> None:
        namespace = self.cluster.namespace
        self.plane.admin.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", manifest)
