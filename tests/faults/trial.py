"""A run: faults in an order drawn from the seed, under an audit, with deadlines after each."""

import asyncio
import functools
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from random import Random
from typing import Any, Final

from extender.api import names
from tests.faults.growth import Growth, memory_mib, open_files
from tests.faults.kinds import AGAIN_S, KINDS, RESTORE, WEIGHTS
from tests.faults.load import DOWN, FOLDERS, PROJECTS, Load, asking, has_ended
from tests.faults.stage import PROBE, NotDoneError, Stage
from tests.faults.tally import Tally
from tests.support import workloads
from tests.support.auditor import Auditor, Limits
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.process import ControlPlaneError

#: Seconds between two steps of the load.
STEP_S: Final = 0.4
#: Deadline after a fault for a new pod within its project's quota to be bound.
PROBE_S: Final = 60.0
#: Deadline for all pods that can run to be bound, once the load is within its quotas.
CHECK_S: Final = 120.0
SETTLE_S: Final = 30.0
#: During a series of faults no controller may lead for 10 s in a row: for more than a minute, or at
#: a load of 18 for more than three. Only a leader removes rows without a pod. At a check point all
#: of these must be gone.
LIMITS: Final = Limits(orphan_row_s=300.0)
#: A pod that exists this long after its grace period is stuck.
STUCK_S: Final = 15.0
#: Number of faults between two check points, and in a soak, which samples at each.
STRETCH: Final = 8
SOAK_STRETCH: Final = 4
LOOK_S: Final = 0.5
EVENTS: Final = "/apis/events.k8s.io/v1/events"


class Trial:
    """One run with one seed; `run` prints a line for each fault."""

    def __init__(
        self, stage: Stage, seed: int, kinds: tuple[str, ...], growth: Growth | None = None
    ) -> None:
        """With `growth`, the run is a soak, and samples go there."""
        self.tally = Tally(kinds)
        self._growth = growth
        self._stretch = STRETCH if growth is None else SOAK_STRETCH
        self._stage = stage
        self._seed = seed
        self._kinds = kinds
        self._random = Random(seed)
        self._load = Load(stage, Random(seed + 1))
        self._auditor: Auditor | None = None
        self._is_loading = True
        self._n_probes = 0

    async def run(self, ends_s: float) -> None:
        """Run every kind once, and then drawn ones until the clock reaches `ends_s`."""
        try:
            await asyncio.to_thread(self._load.borrow)
            async with asyncio.TaskGroup() as tasks:
                loading = tasks.create_task(self._keep_loading())
                await asyncio.sleep(5)
                await self._inject_until(ends_s)
                loading.cancel()
        finally:
            await self._end_audit(SETTLE_S)
            self.tally.counted += self._stage.done
            self.tally.crashes += self._stage.crashes

    async def _inject_until(self, ends_s: float) -> None:
        n_injected = 0
        for n_injected, kind in enumerate(self._draw(ends_s), 1):
            await self._inject(kind)
            if n_injected % self._stretch == 0:
                await self._check()
        if n_injected % self._stretch:
            await self._check()

    def _draw(self, ends_s: float) -> Iterator[str]:
        """Every kind, once more those that had no effect, and drawn ones until `ends_s`."""
        yield from self._random.sample(self._kinds, len(self._kinds))
        yield from [kind for kind in self._kinds if not self.tally.done[kind]]
        weights = [WEIGHTS.get(kind, 1) for kind in self._kinds]
        while time.monotonic() < ends_s:
            yield from self._random.choices(self._kinds, weights)

    async def _keep_loading(self) -> None:
        while True:
            if self._is_loading:
                await asyncio.to_thread(self._load.step)
            await asyncio.sleep(STEP_S)

    # -- one fault ---------------------------------------------------------------------------------

    async def _inject(self, kind: str) -> None:
        if self._auditor is None and kind != RESTORE:
            await self._begin_audit()
        began_s = time.monotonic()
        act = self._restore if kind == RESTORE else functools.partial(KINDS[kind], self._stage)
        try:
            said = await act(self._random)
        except (NotDoneError, ControlPlaneError, *DOWN) as error:
            notes = getattr(error, "__notes__", ())
            said = "\n  ".join([f"NOT DONE: {error!r}", *notes])
        else:
            self.tally.done[kind] += 1
        took_s = time.monotonic() - began_s
        back = await self._probe(kind)
        ended = await asyncio.to_thread(self._revive)
        self._say(kind, f"{said}; after {took_s:.0f} s; {back}{ended}")

    async def _restore(self, random: Random) -> str:
        """Restore etcd to some seconds before; the audit is closed first, and a new one begins."""
        copy = await asyncio.to_thread(self._stage.plane.copy_etcd)
        age_s = random.uniform(2, 6)
        await asyncio.sleep(age_s)
        await self._end_audit(0)
        is_bumped = random.random() < 0.5
        self._is_loading = False
        try:
            restore = functools.partial(self._stage.plane.restore_etcd, copy, is_bumped=is_bumped)
            await asyncio.to_thread(restore)
            for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
                await asyncio.to_thread(self._stage.start, name)
        finally:
            self._is_loading = True
            await asyncio.to_thread(self._stage.drop_copy, copy)
        await self._begin_audit()
        return f"{age_s:.1f} s back, {'a higher' if is_bumped else 'an older'} revision"

    def _revive(self) -> str:
        """Restart programs that ended by themselves, which none may; names them."""
        dead = self._stage.dead()
        for name in dead:
            self._stage.start(name)
        dead += self._stage.ended
        self._stage.ended.clear()
        self.tally.misses += [f"seed {self._seed}: {name} ended by itself" for name in dead]
        return f"; ENDED BY ITSELF: {', '.join(dead)}" if dead else ""

    # -- safety ------------------------------------------------------------------------------------

    async def _begin_audit(self) -> None:
        self._auditor = Auditor(self._stage.store, limits=LIMITS, needs_binds=False)
        await self._auditor.__aenter__()

    async def _end_audit(self, settle_s: float) -> None:
        if self._auditor is None:
            return
        verdict = await self._auditor.finish(settle_s=settle_s)
        await self._auditor.__aexit__(None, None, None)
        self._auditor = None
        self.tally.add(verdict)
        if not verdict.is_clean:
            kept = await asyncio.to_thread(self._stage.keep, f"seed-{self._seed}")
            self._say("audit", f"kept in {kept}; {verdict}")

    # -- liveness ----------------------------------------------------------------------------------

    async def _probe(self, kind: str) -> str:
        """Wait until a new pod of one GPU, within its project's quota, is bound."""
        self._n_probes += 1
        pods, name = FOLDERS["Pod"].format(PROBE), f"probe-{self._n_probes}"
        body = asking(1000)
        body["metadata"] |= {"name": name}
        body["spec"]["terminationGracePeriodSeconds"] = 0
        began_s = time.monotonic()
        pod: dict[str, Any] = {}
        while time.monotonic() - began_s < PROBE_S:
            with suppress(*DOWN):
                pod = await asyncio.to_thread(self._look_at_probe, pods, name, body)
                if pod["spec"].get("nodeName"):
                    break
                if time.monotonic() - began_s > STUCK_S:
                    await asyncio.to_thread(self._end_stuck, kind)
            await asyncio.sleep(0.2)
        took_s = time.monotonic() - began_s
        is_bound = bool(pod and pod["spec"].get("nodeName"))
        if not is_bound:
            await self._miss(kind, f"a new pod is not bound in {PROBE_S:g} s", _why(pod))
        delete = functools.partial(self._stage.admin.delete, f"{pods}/{name}")
        await self._stage.insist(delete, AGAIN_S)
        return f"a new pod is bound after {took_s:.1f} s" if is_bound else "MISSED"

    async def _miss(self, kind: str, what: str, *details: str) -> None:
        """Count a missed deadline, and keep logs and objects for finding its cause."""
        what += f", at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        self.tally.misses.append(f"seed {self._seed}, {kind}: {what}: {details[0]}")
        kept = await asyncio.to_thread(self._stage.keep, f"seed-{self._seed}")
        self._say(kind, "\n  ".join([f"MISS: {what}; kept in {kept}", *details]))

    def _look_at_probe(self, pods: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The probe; created if it does not exist (yet, or any more after a restore)."""
        try:
            found: dict[str, Any] = self._stage.admin.get(f"{pods}/{name}")
        except ApiRefusedError as refusal:
            if refusal.status != 404:
                raise
            found = self._stage.admin.post(pods, {"apiVersion": "v1", "kind": "Pod", **body})
        return found

    async def _check(self) -> None:
        """Wait, with the load within its quotas, until all pods that can run are bound and the rows
        are right."""
        self._is_loading = False
        began_s, wrong = time.monotonic(), ["the API server did not answer"]
        is_trimmed = False
        while wrong and time.monotonic() - began_s < CHECK_S:
            with suppress(*DOWN):
                if not is_trimmed:
                    await asyncio.to_thread(self._load.trim)
                    is_trimmed = True
                wrong = await asyncio.to_thread(self._wrong)
                await asyncio.to_thread(self._end_stuck, "check")
            await asyncio.sleep(LOOK_S)
        self.tally.n_checked += 1
        self._is_loading = True
        if not wrong:
            self._say(
                "check", f"all that can run is bound after {time.monotonic() - began_s:.1f} s"
            )
            if self._growth is not None:
                self._growth.add(await asyncio.to_thread(self._sample))
            return
        await self._miss("check", f"{len(wrong)} wrong after {CHECK_S:g} s", *wrong)

    def _end_stuck(self, kind: str) -> None:
        """End stuck pods as a kubelet would: kwok forgets terminating pods, such as those that it
        had deleted before a restore. No deadline is extended."""
        stuck = [pod for each in (*PROJECTS, PROBE) for pod in self._pods(each) if _is_stuck(pod)]
        for pod in stuck:
            self._stage.end_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if stuck:
            self._say(kind, f"kwok forgot to end {', '.join(map(_key, stuck))}")

    def _pods(self, project: str) -> list[dict[str, Any]]:
        return self._stage.items(FOLDERS["Pod"].format(project))

    def _sample(self) -> dict[str, float]:
        """The present values of a soak's series; the last word of a name is its unit."""
        sample: dict[str, float] = {}
        for name, program in self._stage.programs.items():
            sample[f"{name} MiB"] = memory_mib(program.pid)
            sample[f"{name} files"] = open_files(program.pid)
        ledgers = self._stage.items(f"{workloads.API}/gpunodes")
        sample["rows"] = sum(len(each["spec"]["rows"]) for each in ledgers)
        sample["pod groups"] = len(self._stage.items(f"{workloads.API}/gpupodgroups"))
        sample["events"] = len(self._stage.items(EVENTS))
        return sample

    def _wrong(self) -> list[str]:
        """Pods that could run and are not bound, and rows that do not belong to bound pods."""
        pods = [
            pod
            for project in (*PROJECTS, PROBE)
            for pod in self._pods(project)
            if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]
        ]
        rows = {
            row["uid"]: f"row of {row['namespace']}/{row['name']} on {node['metadata']['name']}"
            for node in self._stage.items(f"{workloads.API}/gpunodes")
            for row in node["spec"]["rows"]
            if not row.get("move")  # kept for a successor; the auditor judges for how long
        }
        bound = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        wrong = [f"{_key(pod)} is not bound: {_why(pod)}" for pod in _runnable(pods)]
        wrong += [f"{said} without its bound pod" for uid, said in rows.items() if uid not in bound]
        wrong += [
            f"{_key(pod)} is bound without a row"
            for pod in pods
            if pod["metadata"]["uid"] in bound - rows.keys()
        ]
        return wrong

    def _say(self, kind: str, text: str) -> None:
        print(f"seed {self._seed}, {kind}: {text}", flush=True)


def _is_stuck(pod: dict[str, Any]) -> bool:
    """Whether the pod still exists long after its grace period."""
    ends = pod["metadata"].get("deletionTimestamp")
    return bool(ends) and time.time() - datetime.fromisoformat(ends).timestamp() > STUCK_S


def _runnable(pods: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pods that are not bound and whose gang has all its pods."""
    present: dict[tuple[str, str], int] = {}
    for pod in pods:
        meta = pod["metadata"]
        gang = meta["namespace"], meta["labels"].get(names.LABEL_POD_GROUP, "")
        present[gang] = present.get(gang, 0) + 1
    for pod in pods:
        meta = pod["metadata"]
        group = meta["labels"].get(names.LABEL_POD_GROUP, "")
        needs = int(meta["annotations"].get(names.ANNOTATION_MIN_MEMBER, "1")) if group else 1
        if not pod["spec"].get("nodeName") and present[meta["namespace"], group] >= needs:
            yield pod


def _key(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _why(pod: dict[str, Any]) -> str:
    """The messages of the pod's conditions."""
    if not pod:
        return "it was never made"
    said = [
        f"{each['type']}={each.get('reason', '')}: {each.get('message', '')}"
        for each in pod["status"].get("conditions", ())
        if each["status"] == "False"
    ]
    return "; ".join(said) or f"no condition; {pod['spec'].get('schedulingGates')}"


@asynccontextmanager
async def opened(
    seed: int, kinds: tuple[str, ...], growth: Growth | None = None
) -> AsyncIterator[Trial]:
    """A trial on its own stage; with `growth`, a soak."""
    async with Stage.open() as stage:
        yield Trial(stage, seed, kinds, growth)
