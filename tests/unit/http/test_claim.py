"""How the extender classifies a pod, by its gate, its plan, and a revoked plan."""

import pytest

from extender.api.objects import Pod
from extender.http.claim import ClaimMemory, RowName, read_claim
from tests.support.builders import pod

PLAN = "ballast.dev/plan"
REVOKED = "ballast.dev/revoked"


def half(name: str = "a", notes: dict[str, str] | None = None) -> Pod:
    """A pod of half a GPU after its gate has fallen, with these annotations."""
    return pod(name).needs(500).direct().notes(notes or {}).build()


@pytest.mark.parametrize(
    ("notes", "way"),
    [
        ({}, "direct"),
        ({PLAN: "7 n1"}, "planned"),
        ({PLAN: "7 n1", REVOKED: "n2 6 0"}, "planned"),
        ({PLAN: "7"}, "withheld"),
        ({PLAN: "seven n1"}, "withheld"),
        ({PLAN: "7 n1/.."}, "withheld"),
        ({REVOKED: "n1 7 0"}, "withheld"),
    ],
)
def test_a_pod_is_bound_by_its_plan_or_directly_and_not_after_a_revoked_one(
    notes: dict[str, str], way: str
) -> None:
    claim = read_claim(half(notes=notes))
    assert claim.way == way
    if way == "planned":
        assert claim.plan == RowName("n1", 7)


def test_a_gated_pod_is_withheld_whatever_its_plan_says() -> None:
    assert read_claim(pod("a").needs(500).notes({PLAN: "7 n1"}).build()).way == "withheld"


def test_share_by_a_claim_is_not_placed_directly() -> None:
    assert read_claim(pod("a").claims_mib(1024).direct().build()).way == "withheld"


def test_only_the_latest_claims_are_remembered() -> None:
    memory = ClaimMemory(limit=2)
    first, *others = (read_claim(half(name)) for name in ("a", "b", "c"))
    for claim in (first, *others):
        memory.remember(claim)
    assert len(memory) == 2
    assert memory.claim_of(first.uid) is None
    assert [memory.claim_of(each.uid) for each in others] == others
