"""Plans that tests write, for the steps after a decision."""

from extender.api.reasons import Reason
from extender.policy.plan import Admission, Eviction, Move, Placement, Plan
from extender.scenario.snapshot import take_snapshot
from extender.scenario.world import World
from extender.state.card_shares import card_shares
from extender.state.model import PodView, WorkloadView


class Planner:
    """A plan in the making for the tasks of a world, which are named by their ids."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.plan = Plan()
        self._workloads = take_snapshot(world).workloads

    def bind(self, id_: str, node: str = "n0", cards: tuple[int, ...] = (0,)) -> "Planner":
        workload, pod = self._find(id_)
        placement = self._placement(pod, node, cards)
        self.plan.admissions.append(Admission(workload, (placement,), "reserved"))
        return self

    def nominate(self, id_: str, node: str = "n0", cards: tuple[int, ...] = (0,)) -> "Planner":
        workload, pod = self._find(id_)
        placement = self._placement(pod, node, cards)
        self.plan.admissions.append(Admission(workload, (placement,), "nominated"))
        return self

    def evict(self, id_: str, beneficiary: str = "") -> "Planner":
        workload, pod = self._find(id_)
        whom = f"default/{beneficiary}" if beneficiary else ""
        self.plan.evictions.append(Eviction(pod, workload.key, Reason.RECLAIMED, whom, "test"))
        return self

    def move(
        self, id_: str, node: str, cards: tuple[int, ...] = (0,), beneficiary: str = ""
    ) -> "Planner":
        workload, pod = self._find(id_)
        whom = f"default/{beneficiary}" if beneficiary else ""
        placement = self._placement(pod, node, cards)
        self.plan.moves.append(Move(placement, workload.key, Reason.PREEMPTED, whom))
        return self

    def _placement(self, pod: PodView, node: str, cards: tuple[int, ...]) -> Placement:
        mib = next((n.gpu_memory_mib for n in self.world.cluster.case.nodes if n.name == node), 1)
        return Placement(pod, node, card_shares(pod.demand, mib, cards))

    def _find(self, id_: str) -> tuple[WorkloadView, PodView]:
        workload = self._workloads[f"default/{id_.partition('/')[0]}"]
        return workload, next(pod for pod in workload.pods if pod.uid == id_)
