"""Topology constraints: required and preferred levels, at any group of a tree."""

from extender.api.reasons import Reason
from extender.policy.plan import Plan
from extender.state.model import GroupView, TopologyRule
from tests.support.snapshots import Cluster, allocated, statuses


def racks(*free: int, zones: int = 1) -> Cluster:
    """Racks r0, r1, ... of two nodes each, with so many free GPUs of eight on both together."""
    cluster = Cluster()
    cluster.topologies = {"t": ("zone", "rack")}
    cluster.project("a", 100)
    per_zone = -(-len(free) // zones)
    for at, gpus in enumerate(free):
        labels = {"zone": f"z{at // per_zone}", "rack": f"r{at}"}
        for half in range(2):
            name = f"r{at}-{half}"
            cluster.node(name, gpus=4, labels=labels)
            used = 4 - (gpus + 1 - half) // 2
            if used:
                cluster.job(f"old-{name}", "a", used, on=name)
    return cluster


def near(
    required: str | None = None, preferred: str | None = None, *children: GroupView, least: int = 0
) -> GroupView:
    rule = TopologyRule("t", required, preferred)
    return GroupView(name="", min_member=least, topology=rule, children=children)


def racks_of(plan: Plan) -> list[str]:
    """The racks of all pods that are placed, one letter and figure each, sorted."""
    return sorted(p.node.split("-")[0] for a in plan.admissions for p in a.placements)


def test_gang_stays_in_one_domain_of_the_required_level() -> None:
    cluster = racks(3, 5, 3)
    cluster.job("gang", "a", pods=4, tree=near("rack", least=4))
    assert racks_of(allocated(cluster)) == ["r1"] * 4


def test_gang_waits_when_no_domain_holds_all_of_it() -> None:
    cluster = racks(3, 3, 3)
    cluster.job("gang", "a", pods=4, tree=near("rack", least=4))
    plan = allocated(cluster)
    assert not statuses(plan)
    refused = plan.waits["ns/gang"]
    assert refused.reason is Reason.NO_TOPOLOGY_DOMAIN
    assert "no one rack has a place for all; the roomiest takes 3 of 4" in refused.detail


def test_tightest_domain_that_holds_the_gang_is_taken() -> None:
    cluster = racks(8, 5, 4)
    cluster.job("gang", "a", pods=4, tree=near("rack", least=4))
    assert racks_of(allocated(cluster)) == ["r2"] * 4


def test_room_is_counted_in_pods_not_in_gpus() -> None:
    cluster = racks(6, 4)
    # Three and three are free in the first rack, two and two in the other.
    cluster.job("gang", "a", 4, pods=1, tree=near("rack", least=1))
    plan = allocated(cluster)
    assert not statuses(plan)
    assert plan.waits["ns/gang"].reason is Reason.INSUFFICIENT_GPU


def test_preferred_level_is_kept_where_it_can_be() -> None:
    cluster = racks(3, 5, 3)
    cluster.job("gang", "a", pods=4, tree=near(None, "rack", least=4))
    assert racks_of(allocated(cluster)) == ["r1"] * 4


def test_preferred_level_gives_way_to_the_next_wider_one() -> None:
    cluster = racks(3, 3, 3, 2, zones=2)
    cluster.job("gang", "a", pods=5, tree=near(None, "rack", least=5))
    assert set(racks_of(allocated(cluster))) == {"r2", "r3"}


def test_beyond_its_preferred_level_a_gang_uses_as_few_domains_as_it_can() -> None:
    cluster = racks(1, 4, 1, 3)
    cluster.job("gang", "a", pods=6, tree=near(None, "rack", least=6))
    assert racks_of(allocated(cluster)) == ["r1"] * 4 + ["r3"] * 2


def test_preference_never_breaks_what_is_required() -> None:
    cluster = racks(3, 3, 3, 1, zones=2)
    cluster.job("gang", "a", pods=5, tree=near("zone", "rack", least=5))
    assert set(racks_of(allocated(cluster))) == {"r0", "r1"}
    cluster.job("larger", "a", pods=5, tree=near("zone", "rack", least=5))
    plan = allocated(cluster)
    assert set(statuses(plan)) == {f"gang-{at}" for at in range(5)}


def test_groups_inside_a_group_have_their_own_domains_inside_its_domain() -> None:
    cluster = racks(8, 2, 4, 4, zones=2)
    half = TopologyRule("t", "rack", None)
    tree = near(
        "zone",
        None,
        GroupView(name="x", min_member=4, topology=half),
        GroupView(name="y", min_member=4, topology=half),
        least=8,
    )
    cluster.job("gang", "a", pods=8, tree=tree, groups=["x"] * 4 + ["y"] * 4)
    plan = allocated(cluster)
    by_group: dict[str, set[str]] = {}
    for admission in plan.admissions:
        for placed in admission.placements:
            by_group.setdefault(placed.pod.group, set()).add(placed.node.split("-")[0])
    # The other zone has more free in all, but two racks of four fit the two groups exactly.
    assert {len(domains) for domains in by_group.values()} == {1}
    assert by_group["x"] | by_group["y"] <= {"r2", "r3"} or by_group["x"] == by_group["y"] == {"r0"}


def test_running_pods_determine_the_domain_of_pending_ones() -> None:
    cluster = racks(6, 8)
    cluster.job("gang", "a", pods=1, on="r0-0", waiting=2, min=1, tree=near("rack", least=1))
    assert racks_of(allocated(cluster)) == ["r0", "r0"]


def test_growth_waits_when_its_domain_is_full() -> None:
    cluster = racks(1, 8)
    cluster.job("gang", "a", pods=1, on="r0-0", waiting=2, min=1, tree=near("rack", least=1))
    assert not statuses(allocated(cluster))


def test_surplus_stays_in_the_domain_that_the_minimum_has_taken() -> None:
    cluster = racks(3, 8)
    cluster.job("gang", "a", pods=5, min=2, tree=near("rack", least=2))
    assert racks_of(allocated(cluster)) == ["r0"] * 3


def test_unknown_level_is_named() -> None:
    cluster = racks(8)
    cluster.job("gang", "a", pods=9, tree=near("row", least=9))
    refused = allocated(cluster).waits["ns/gang"]
    assert "row" in refused.detail


def test_nodes_without_the_labels_are_in_no_domain() -> None:
    cluster = racks(1)
    cluster.node("bare", gpus=8)
    cluster.job("gang", "a", pods=4, tree=near("rack", least=4))
    assert not statuses(allocated(cluster))


def test_domains_with_the_same_name_in_two_zones_are_two() -> None:
    cluster = Cluster()
    cluster.topologies = {"t": ("zone", "rack")}
    cluster.project("a", 10)
    for zone in ("z0", "z1"):
        cluster.node(zone, gpus=2, labels={"zone": zone, "rack": "r"})
    cluster.job("gang", "a", pods=4, tree=near("rack", least=4))
    assert not statuses(allocated(cluster))


def test_group_may_ask_for_less_nearness_than_the_group_around_it() -> None:
    cluster = racks(2, 8, 4)
    child = GroupView(name="x", min_member=4, topology=TopologyRule("t", "zone", "rack"))
    cluster.job("gang", "a", pods=4, groups=["x"] * 4, tree=near("rack", None, child, least=4))
    assert racks_of(allocated(cluster)) == ["r2"] * 4


def test_group_that_asks_for_less_stays_in_the_domain_of_the_group_around_it() -> None:
    cluster = racks(1, 8)
    child = GroupView(name="x", min_member=1, topology=TopologyRule("t", "zone", "rack"))
    tree = near("rack", None, child, least=1)
    cluster.job("gang", "a", pods=1, on="r0-0", waiting=2, min=1, groups=["x"] * 3, tree=tree)
    assert not statuses(allocated(cluster))
