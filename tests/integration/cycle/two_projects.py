"""The stage of the controller's tests: all programs, and two projects of one department."""

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from extender.kube.client import Client
from extender.policy.plan import Stage
from tests.support import workloads
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import Installation
from tests.support.sight import Sight, look, until

#: Generous: a busy machine is no failure, and a wait that is met ends at once.
DONE_S = 90.0
LEASE_S = 3.0
#: Seconds until a released pod that is not bound is taken back; short, to be seen in a test.
BIND_S = 4.0
#: Seconds that a pod takes to stop if it is to be there until `Scene.end_now`.
NEVER_S = 360
PROJECTS = ("team-a", "team-b")


class Scene:
    """Namespaces are named as the projects. A wait fails after `done_s` seconds."""

    def __init__(self, cluster: Cluster, installation: Installation, client: Client) -> None:
        self.cluster = cluster
        self.plane = cluster.control_plane
        self.admin = cluster.control_plane.admin
        self.installation = installation
        self.client = client
        self.done_s = DONE_S

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        cluster: Cluster,
        n_nodes: int,
        cards: int,
        *,
        usage_s: float = 60.0,
        bind_s: float = BIND_S,
    ) -> AsyncIterator["Scene"]:
        """`n_nodes` with `cards` each; each project has half of them as quota. Usage books are
        written every `usage_s` seconds; a released pod is taken back after `bind_s`."""
        plane = cluster.control_plane
        quota = n_nodes * cards
        plane.admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", quota))
        for name in PROJECTS:
            plane.make_namespace(name)
            body = workloads.project(name, "research", name, quota // 2)
            plane.admin.post(f"{workloads.API}/gpuprojects", body)
        installation = Installation(plane, lease_s=LEASE_S, bind_s=bind_s, usage_s=usage_s)
        try:
            await asyncio.to_thread(cluster.add_gpu_nodes, n_nodes, cards)
            await asyncio.to_thread(installation.start)
            async with await cluster.client() as client:
                scene = cls(cluster, installation, client)
                await scene.until(
                    lambda: scene.nodes_say_milli() == [str(1000 * cards)] * n_nodes,
                    "every node to say its gpu-milli",
                )
                yield scene
        finally:
            installation.stop()

    def submit_job(self, project: str, name: str, n_pods: int, milli: int, **options: Any) -> None:
        """A Job of `n_pods` in the project's namespace."""
        body = workloads.job(name, project, n_pods, milli, **options)
        self.admin.post(f"/apis/batch/v1/namespaces/{project}/jobs", body)

    def submit_pod(self, project: str, name: str, milli: int, **options: Any) -> None:
        """A pod that nothing makes again."""
        body = workloads.bare_pod(name, project, milli, **options)
        self.admin.post(f"/api/v1/namespaces/{project}/pods", body)

    def n_ending(self, project: str) -> int:
        """How many of the project's pods are told to end."""
        return len(self._ending(project))

    def end_now(self, project: str) -> None:
        """Remove the project's pods that are told to end, whatever their grace."""
        now = ("--force", "--grace-period=0", "--wait=false", "--ignore-not-found")
        names = self._ending(project)
        self.cluster.kubectl("delete", "pod", *names, "-n", project, *now)

    def _ending(self, project: str) -> list[str]:
        pods = self.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
        metas = (each["metadata"] for each in pods)
        return [each["name"] for each in metas if "deletionTimestamp" in each]

    def set_budget(self, project: str, hours: int) -> None:
        """Give the project a budget of GPU-hours a month."""
        path = "/spec/nodePools/0/gpu/gpuHoursPerMonth"
        patch = json.dumps([{"op": "add", "path": path, "value": hours}])
        self.cluster.kubectl("patch", "gpuproject", project, "--type=json", "-p", patch)

    def get(self, path: str) -> Any:
        """One object or list of our group."""
        return self.admin.get(f"{workloads.API}/{path}")

    def nodes_say_milli(self) -> list[str]:
        """What the nodes' status says of gpu-milli, in plain digits."""
        nodes = self.admin.get("/api/v1/nodes")["items"]
        said = [node["status"]["allocatable"].get("ballast.dev/gpu-milli", "") for node in nodes]
        return [text.replace("k", "000") for text in said]

    def foreign_gpus(self) -> int:
        """GPUs that Ballast knows to be held by pods of others."""
        statuses = (node.get("status", {}) for node in self.get("gpunodes")["items"])
        return sum(each["gpus"] for status in statuses for each in status.get("foreign", []))

    def events(self, namespace: str) -> list[tuple[str, str]]:
        """(reason, object) of our events in the namespace, without those on owners of pods."""
        return [
            (event["reason"], event["regarding"]["name"])
            for event in self.full_events(namespace)
            if event["regarding"]["kind"] != "Job"
        ]

    def reasons(self, namespace: str, prefix: str = "") -> set[str]:
        """Reasons of our events on the namespace's pods whose names begin with `prefix`."""
        return {reason for reason, pod in self.events(namespace) if pod.startswith(prefix)}

    def full_events(self, namespace: str) -> list[Any]:
        """Our events in the namespace, as they are stored."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        listed = self.admin.get(path)["items"]
        return [
            event for event in listed if event.get("reportingController") == "ballast-controller"
        ]

    def metrics(self) -> str:
        """What the controller counts."""
        connection = http.client.HTTPConnection(LOOPBACK, self.installation.control.port)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def count(self, series: str) -> int:
        """The value of the series, 0 where it is not there."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.M)
        return int(float(found[1])) if found else 0

    async def until_decided(self, n_cycles: int) -> None:
        """Until so many more cycles have decided: whatever they would have done has begun."""
        await self._until_counted('ballast_control_cycles_total{result="done"}', n_cycles)

    async def until_run(self, stage: Stage, n_cycles: int) -> None:
        """Until the stage, which not every cycle has, was part of so many more cycles."""
        series = f'ballast_control_stage_duration_seconds_count{{stage="{stage}"}}'
        await self._until_counted(series, n_cycles)

    async def _until_counted(self, series: str, n_more: int) -> None:
        last = await asyncio.to_thread(self.count, series) + n_more
        await self.until(lambda: self.count(series) >= last, f"{n_more} more of {series}")

    async def look(self, project: str) -> Sight:
        """Pods of the project's namespace, and the rows of all nodes."""
        return await look(self.client, project)

    async def until_bound(self, project: str, n_pods: int) -> None:
        """Until exactly so many of the project's pods are bound."""
        last = Sight()

        async def is_met() -> bool:
            nonlocal last
            last = await self.look(project)
            return len(last.bound) == n_pods

        await until(is_met, self.done_s, lambda: f"{n_pods} bound pods of {project}; last {last}")

    async def until_told(self, namespace: str, reason: str, pod: str) -> None:
        """Until there is an event with the reason on the pod."""
        await self.until(lambda: (reason, pod) in self.events(namespace), f"{reason} on {pod}")

    async def until(self, is_met: Callable[[], bool], what: str) -> None:
        """Until the condition holds."""

        async def holds() -> bool:
            return await asyncio.to_thread(is_met)

        await until(holds, self.done_s, lambda: what)
