"""PersistentVolumeClaims of pods."""

from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import Elastic, ElasticNode
from extender.api.objects import (
    ClaimSource,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Requirement,
    Volume,
)
from extender.api.reasons import Reason
from extender.state.model import PodView
from extender.state.pods.claims import VolumeView
from tests.support.builders import (
    gpu_node,
    node,
    part,
    pod,
    pool,
    project,
    row,
)
from tests.unit.state.model import state_of, workloads_of


def with_claim(name: str) -> Pod:
    made = pod("a").needs(500).build()
    volume = Volume(name="data", persistent_volume_claim=ClaimSource(name))
    return replace(made, spec=replace(made.spec, volumes=[volume]))


def test_a_pod_whose_claim_is_not_met_can_run_nowhere_until_it_is() -> None:
    state = state_of(project("team-a").build(), with_claim("data"))
    assert state.wanted_claims() == {("team-a", "data")}

    def problem() -> Reason | None:
        (workload,) = workloads_of(state).values()
        return workload.problem.reason if workload.problem else None

    assert problem() is Reason.CLAIMS_NOT_MET
    state.set_volume("team-a", "data", VolumeView())
    assert problem() is None
    state.set_volume("team-a", "data", VolumeView(problem="it does not exist"))
    assert problem() is Reason.CLAIMS_NOT_MET


def test_a_pod_awaits_the_volume_of_a_claim_that_gets_one_on_its_node() -> None:
    state = state_of(project("team-a").build(), with_claim("data"))
    for is_open in (True, False):
        state.set_volume("team-a", "data", VolumeView(is_open=is_open))
        (workload,) = workloads_of(state).values()
        assert workload.pods[0].awaits_volume is is_open


def test_the_node_affinity_of_a_volume_is_a_filter_on_nodes() -> None:
    state = state_of(project("team-a").build(), with_claim("data"))
    zone = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])])])
    state.set_volume("team-a", "data", VolumeView(affinity=zone))
    (workload,) = workloads_of(state).values()
    assert workload.pods[0].constraints.volumes == (zone,)


def test_claims_of_pods_that_run_are_read_where_nodes_are_emptied_and_the_pods_stay_meanwhile() -> (
    None
):
    made = with_claim("data")
    made = replace(made, spec=replace(made.spec, node_name="n1", scheduling_gates=None))
    ledger = gpu_node("n1", 1).holds(row(made, part(0, 500), "bound")).build()
    state = state_of(project("team-a").build(), node("n1").build(), ledger, made)
    assert state.wanted_claims() == set()
    kind = pool("default").build()
    sizes = Elastic(max_nodes=2, node=ElasticNode(gpus=8, cpu=8, memory_gib=8))
    for minutes, wanted in ((0, set()), (5, {("team-a", "data")})):
        elastic = replace(sizes, consolidate_after_minutes=minutes)
        state.apply(Upserted(replace(kind, spec=replace(kind.spec, elastic=elastic))))
        assert state.wanted_claims() == wanted

    def view() -> PodView:
        (workload,) = workloads_of(state).values()
        return workload.pods[0]

    assert view().stays
    zone = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])])])
    state.set_volume("team-a", "data", VolumeView(affinity=zone))
    assert not view().stays
    assert view().constraints.volumes == (zone,)
    state.set_volume("team-a", "data", VolumeView(doubt="may be used by one pod alone"))
    assert view().stays
