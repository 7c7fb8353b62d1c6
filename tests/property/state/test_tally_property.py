"""Sums that follow changes one by one are those that are counted from scratch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy.decide import decide
from extender.state.tally import Tally
from tests.property.policy.world import apply, clusters
from tests.support.snapshots import Cluster

RUN = settings(max_examples=100)


@RUN
@given(clusters())
def test_sums_after_each_cycle_are_those_counted_anew(cluster: Cluster) -> None:
    snapshot = cluster.snapshot()
    tally = Tally.of(snapshot.nodes, snapshot.workloads)
    for _ in range(3):
        after = apply(cluster, decide(cluster.snapshot()))
        before_views, after_views = cluster.workloads, after.workloads
        for key in before_views.keys() | after_views.keys():
            tally.replace(before_views.get(key), after_views.get(key))
        cluster = after
        fresh = cluster.snapshot()
        tally.follow(fresh.nodes, fresh.workloads)
        assert tally == Tally.of(fresh.nodes, fresh.workloads)


@RUN
@given(clusters(), st.data())
def test_node_pools_are_followed(cluster: Cluster, data: st.DataObject) -> None:
    snapshot = cluster.snapshot()
    tally = Tally.of(snapshot.nodes, snapshot.workloads)
    for name, ix in snapshot.nodes.cards.ix.items():
        snapshot.nodes.pool[ix] = data.draw(st.sampled_from(["default", "other", ""]), label=name)
    tally.follow(snapshot.nodes, snapshot.workloads)
    assert tally == Tally.of(snapshot.nodes, snapshot.workloads)
