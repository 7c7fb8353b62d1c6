"""A gang's minimum is what it states less the pod names that have succeeded."""

from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.state.cluster import ClusterState
from tests.support.builders import PodBuilder, pod

MINIMUMS = {"driver": 1, "workers": 3}
LEAF = {"d": "driver", "w1": "workers", "w2": "workers", "w3": "workers", "w4": "workers"}
NAMES = st.sampled_from(sorted(LEAF))


class GangMachine(RuleBasedStateMachine):
    """Pods of one gang and one owner, which makes them again under their names."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.pods: dict[str, PodBuilder] = {}
        self.live: set[str] = set()
        self.succeeded: set[str] = set()
        self.n_made = 0

    @rule(name=NAMES)
    def make(self, name: str) -> None:
        """The API holds no pod of this name any more when a new one is made."""
        self.delete(name)
        self.n_made += 1
        made = pod(name).uid(f"uid-{self.n_made}").needs(1000).gang("g", 4).sub_group(LEAF[name])
        self.pods[name] = made.notes({"ballast.dev/sub-groups": "driver=1,workers=3"})
        self.live.add(name)
        self.succeeded.discard(name)
        self.state.apply(Upserted(self.pods[name].build()))

    @rule(name=NAMES, phase=st.sampled_from(["Succeeded", "Failed"]), times=st.integers(1, 2))
    def end(self, name: str, phase: Literal["Succeeded", "Failed"], times: int) -> None:
        if name in self.live:
            self.live.discard(name)
            if phase == "Succeeded":
                self.succeeded.add(name)
            for _ in range(times):
                self.state.apply(Upserted(self.pods[name].ended(phase).build()))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        gone = self.pods.pop(name, None)
        if gone is not None:
            self.live.discard(name)
            self.state.apply(Removed(Pod, gone.build().metadata.uid, "team-a", name))

    @invariant()
    def minimum_is_what_is_left(self) -> None:
        self.state.validate_state()
        if not self.live:
            assert self.state.workloads() == {}
            return
        view = self.state.workloads()["team-a/g"]
        left = dict(MINIMUMS)
        for name in self.succeeded:
            left[LEAF[name]] = max(0, left[LEAF[name]] - 1)
        assert view.tree is not None
        assert {leaf.name: leaf.min_member for leaf in view.tree.children} == left
        assert view.min_member == max(1, sum(left.values()))


TestGang = GangMachine.TestCase
TestGang.settings = settings(max_examples=100, stateful_step_count=30)
