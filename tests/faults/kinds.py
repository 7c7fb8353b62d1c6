"""The faults. Each acts on a stage, restores it, and returns a short description.

A fault ends when all programs that it killed are started again; then `trial` judges the effects. A
fault without effect raises NotDoneError and does not count.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final

from tests.faults.crashes import crash_at_writes
from tests.faults.load import FOLDERS, asking, bare_pod
from tests.faults.stage import NODES, NotDoneError, Stage
from tests.support.controlplane.admin import ApiRefusedError

Act = Callable[[Stage, Random], Awaitable[str]]

#: Names of events that faults count besides themselves.
SPLIT_BRAIN: Final = "split-brain trials"
STALLS: Final = "stalls"
CUTS: Final = "cuts"

OURS: Final = ("control", "other", "serve", "webhooks")
THEIRS: Final = ("kube-scheduler", "kube-apiserver", "etcd", "kube-controller-manager")
#: Number of pods that one request deletes.
FLOOD: Final = 1000
#: Deadline for a program that was stopped to report that it leads.
LEADS_S: Final = 90.0
#: The longest time in which a program may send no request.
LOSS_S: Final = 20.0
#: Deadline for the API server to accept writes again.
AGAIN_S: Final = 60.0
#: Deadline for the flood's deletion; on a busy machine the API server aborts it after 60 s.
ALL_DELETED_S: Final = 300.0


async def _kill(name: str, stage: Stage, random: Random) -> str:
    away_s = random.uniform(0, 3)
    await asyncio.to_thread(stage.kill, name)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(stage.start, name)
    return f"away for {away_s:.1f} s"


async def _stop(name: str, stage: Stage, random: Random) -> str:
    asleep_s = random.uniform(1, 6)
    stage.freeze(name)
    await asyncio.sleep(asleep_s)
    stage.thaw(name)
    return f"asleep for {asleep_s:.1f} s"


async def _two_leaders(stage: Stage, random: Random) -> str:
    """A frozen leader resumes while another controller leads, five times."""
    return "; ".join([await _split_brain(stage, random) for _ in range(5)])


async def _split_brain(stage: Stage, random: Random) -> str:
    """The leader is frozen until the other controller leads, and resumes as if it still led."""
    first = await asyncio.to_thread(stage.leader)
    if first not in stage.programs:
        raise NotDoneError(f"{first!r} leads")
    stage.freeze(first)
    try:
        async with asyncio.timeout(LEADS_S):
            while (second := await asyncio.to_thread(stage.leader)) == first:
                await asyncio.sleep(0.1)
        await asyncio.sleep(random.uniform(0, 2))
    finally:
        stage.thaw(first)
    stage.done[SPLIT_BRAIN] += 1
    return f"{first} came back while {second} led"


async def _extender_and_webhooks(stage: Stage, random: Random) -> str:
    away_s = random.uniform(1, 5)
    for name in ("serve", "webhooks"):
        stage.kill(name)
    await asyncio.sleep(away_s)
    for name in ("serve", "webhooks"):
        stage.start(name)
    return f"away for {away_s:.1f} s"


# -- the store -----------------------------------------------------------------------------------


async def _compaction(stage: Stage, _random: Random) -> str:
    revision = await asyncio.to_thread(stage.plane.compact_etcd)
    return f"up to revision {revision}"


async def _all_watches_expire(stage: Stage, _random: Random) -> str:
    revision = await asyncio.to_thread(stage.plane.forget_history)
    return f"410 below revision {revision}"


# -- objects -------------------------------------------------------------------------------------


async def _node_again(stage: Stage, random: Random) -> str:
    manifest = random.choice(NODES.manifests())
    name = manifest["metadata"]["name"]
    away_s = random.choice((0.0, 1.0, 4.0))
    delete = functools.partial(stage.admin.delete, f"/api/v1/nodes/{name}")
    await stage.insist(delete, AGAIN_S)
    await asyncio.sleep(away_s)
    create = functools.partial(stage.admin.ensure, "/api/v1/nodes", manifest)
    await stage.insist(create, AGAIN_S)
    # A kubelet registers again; kwok may ignore such a node until its lease has expired.
    await asyncio.to_thread(stage.start, "kwok")
    return f"{name} after {away_s:g} s"


async def _pods_again(stage: Stage, random: Random) -> str:
    """Bare pods are deleted and created again at once with the same names, five times."""
    namespace, n_pods, n_rounds = "team-c", 4, 5
    folder = FOLDERS["Pod"].format(namespace)

    def make(name: str, milli: int) -> None:
        body = bare_pod(name, milli, asking(milli))
        body["spec"]["terminationGracePeriodSeconds"] = 0
        stage.admin.ensure(folder, body)

    for _ in range(n_rounds):
        for ix in range(n_pods):
            name = f"again-{ix}"
            delete = functools.partial(stage.admin.delete, f"{folder}/{name}")
            await stage.insist(delete, AGAIN_S)
            make_again = functools.partial(make, name, random.choice((500, 1000)))
            await stage.insist(make_again, AGAIN_S)
        await asyncio.sleep(random.uniform(0, 0.7))
    for ix in range(n_pods):
        delete = functools.partial(stage.admin.delete, f"{folder}/again-{ix}")
        await stage.insist(delete, AGAIN_S)
    return f"{n_pods} pods {n_rounds} times"


def flood(random: Random) -> list[dict[str, Any]]:
    """A thousand small pods, annotated with their request, so that `Load.trim` deletes the rest."""
    bodies: list[dict[str, Any]] = []
    for ix in range(FLOOD):
        milli = random.choice((100, 200))
        body = bare_pod(f"flood-{ix}", milli, asking(milli))
        body["metadata"]["labels"]["flood"] = "yes"
        body["spec"]["terminationGracePeriodSeconds"] = 0
        bodies.append(body)
    return bodies


async def _many_deleted(stage: Stage, random: Random) -> str:
    """A thousand small pods, most of them pending, are deleted by one request."""
    pods = FOLDERS["Pod"].format("team-a")
    selected = f"{pods}?labelSelector=flood"
    try:
        await asyncio.to_thread(stage.admin.post_all, pods, flood(random))
    except ApiRefusedError as refusal:
        raise NotDoneError(f"not all pods were made: {refusal}") from refusal
    finally:
        found = await asyncio.to_thread(stage.items, selected)
        is_deleted = await stage.insist(
            functools.partial(stage.admin.delete, selected), ALL_DELETED_S
        )
    if not is_deleted:
        raise NotDoneError(f"{len(found)} pods were not deleted in {ALL_DELETED_S:g} s")
    n_bound = sum("nodeName" in each["spec"] for each in found)
    return f"{len(found)} pods, {n_bound} of them bound"


# -- the network between our programs and the API server ------------------------------------------


async def _cut(stage: Stage, random: Random) -> str:
    n_cut = 0
    for _ in range(15):
        n_open = sum(proxy.cut() for proxy in stage.proxies.values())
        stage.done[CUTS] += bool(n_open)
        n_cut += n_open
        await asyncio.sleep(random.uniform(0, 0.5))
    if not n_cut:
        raise NotDoneError("no connection was open")
    return f"{n_cut} connections"


async def _refuse(stage: Stage, random: Random) -> str:
    away_s = random.uniform(1, 6)
    proxies = list(stage.proxies.values())
    before = sum(proxy.n_cut for proxy in proxies)
    for proxy in proxies:
        proxy.refuse()
    await asyncio.sleep(away_s)
    for proxy in proxies:
        proxy.restore()
    return f"for {away_s:.1f} s, {sum(proxy.n_cut for proxy in proxies) - before} connections"


async def _stall(stage: Stage, random: Random) -> str:
    """Four stalls, shorter and longer than the deadline of a request."""
    silences_s = [random.uniform(*random.choice(((0.2, 2), (2, 5), (8, 12)))) for _ in range(4)]
    for silent_s in silences_s:
        for proxy in stage.proxies.values():
            proxy.stall()
        await asyncio.sleep(silent_s)
        for proxy in stage.proxies.values():
            proxy.restore()
        stage.done[STALLS] += 1
        await asyncio.sleep(random.uniform(0.5, 3))
    return f"for {', '.join(f'{silent_s:.1f}' for silent_s in silences_s)} s"


async def _slow(stage: Stage, random: Random) -> str:
    delay_s = random.uniform(0.1, 0.8)
    for proxy in stage.proxies.values():
        proxy.delay_s = delay_s
    await asyncio.sleep(8)
    for proxy in stage.proxies.values():
        proxy.delay_s = 0.0
    return f"{1000 * delay_s:.0f} ms later for 8 s"


async def _lose_answers(stage: Stage, random: Random) -> str:
    """Requests are carried out, but the connection breaks instead of the answer."""
    name = random.choice(("ballast-control", "ballast-scheduler", "other"))
    proxy = stage.proxies[name]
    before, lasts_s = proxy.n_lost, random.uniform(0.5, 4)
    proxy.is_losing = True
    try:
        async with asyncio.timeout(LOSS_S):
            await asyncio.sleep(lasts_s)
            while proxy.n_lost == before:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise NotDoneError(f"{name} asked for nothing") from None
    finally:
        proxy.is_losing = False
    return f"{proxy.n_lost - before} answers to {name}"


def _bound(act: Callable[[str, Stage, Random], Coroutine[Any, Any, str]], name: str) -> Act:
    return functools.partial(act, name)


#: Faults by name. A restore begins a new audit, so `trial` implements it.
KINDS: Final[dict[str, Act]] = {
    **{f"kill {name}": _bound(_kill, name) for name in (*OURS, *THEIRS)},
    **{f"stop {name}": _bound(_stop, name) for name in (*OURS, *THEIRS)},
    "crashes at writes": crash_at_writes,
    "two leaders": _two_leaders,
    "extender and webhooks away": _extender_and_webhooks,
    "compaction": _compaction,
    "all watches expire": _all_watches_expire,
    "node made again": _node_again,
    "pods made again": _pods_again,
    "many pods deleted": _many_deleted,
    "connections cut": _cut,
    "connections refused": _refuse,
    "silent network": _stall,
    "slow answers": _slow,
    "lost answers": _lose_answers,
}
RESTORE: Final = "restore"
#: Weights with which kinds are drawn after each was injected once, from their goals; others: 1.
WEIGHTS: Final = {
    "crashes at writes": 20,
    "two leaders": 8,
    "silent network": 10,
    "connections cut": 6,
    RESTORE: 10,
}

#: The kinds of a soak: they do not end our programs, so that their growth can be measured.
OF_A_SOAK: Final = tuple(
    kind
    for kind in KINDS
    if kind not in {f"kill {name}" for name in OURS}
    and kind not in ("extender and webhooks away", "crashes at writes")
)
