"""Which pods a PodDisruptionBudget applies to, as in the API server."""

import pytest

from extender.api.demand import read_demand
from extender.api.objects import (
    BudgetSpec,
    BudgetStatus,
    Condition,
    LabelSelector,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
)
from extender.state.budgets import MOST_PER_NAMESPACE, BudgetIndex
from extender.state.pods.facts import PodFacts, read_facts
from tests.support.builders import pod


def facts(phase: str, *, is_ready: bool) -> PodFacts:
    built: Pod = pod("a").needs(1000).bound("n1").build()
    built.status.phase = phase
    built.status.conditions = [Condition(type="Ready", status=str(is_ready))]
    return read_facts(built, read_demand(built))


def budgets(policy: str = "IfHealthyBudget", *, healthy: int = 0, n: int = 1) -> BudgetIndex:
    found = BudgetIndex()
    for at in range(n):
        found.set_budget(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=f"b{at}", namespace=facts("", is_ready=True).namespace),
                spec=BudgetSpec(selector=LabelSelector(), unhealthy_pod_eviction_policy=policy),
                status=BudgetStatus(current_healthy=healthy, desired_healthy=2),
            )
        )
    return found


@pytest.mark.parametrize(
    ("policy", "healthy", "phase", "is_ready", "is_bound"),
    [
        ("IfHealthyBudget", 1, "Running", True, True),
        ("IfHealthyBudget", 1, "Running", False, True),
        ("IfHealthyBudget", 2, "Running", False, False),
        ("IfHealthyBudget", 2, "Running", True, True),
        ("AlwaysAllow", 0, "Running", False, False),
        ("AlwaysAllow", 0, "Running", True, True),
        ("IfHealthyBudget", 0, "Pending", False, False),
    ],
)
def test_a_budget_binds_what_the_api_server_asks_it_about(
    policy: str, healthy: int, phase: str, is_ready: bool, is_bound: bool
) -> None:
    found = budgets(policy, healthy=healthy).binding(facts(phase, is_ready=is_ready))
    assert bool(found) is is_bound


def test_a_pod_of_two_budgets_is_bound_whether_it_is_ready_or_not() -> None:
    assert len(budgets("AlwaysAllow", n=2).binding(facts("Running", is_ready=False))) == 2


def test_pods_are_looked_at_again_when_their_budget_becomes_healthy() -> None:
    found = budgets(healthy=1)
    (namespace,) = {facts("", is_ready=True).namespace}
    healthy = PodDisruptionBudget(
        metadata=ObjectMeta(name="b0", namespace=namespace),
        spec=BudgetSpec(selector=LabelSelector()),
        status=BudgetStatus(current_healthy=2, desired_healthy=2),
    )
    assert found.set_budget(healthy)
    assert not found.set_budget(healthy)


def test_only_the_first_budgets_of_a_namespace_by_name_are_counted() -> None:
    found = BudgetIndex()
    namespace = facts("", is_ready=True).namespace
    for at in reversed(range(MOST_PER_NAMESPACE + 1)):
        # Only the last by name selects the pod.
        label = {} if at == MOST_PER_NAMESPACE else {"app": "other"}
        found.set_budget(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=f"b{at:03}", namespace=namespace, uid=f"u{at}"),
                spec=BudgetSpec(selector=LabelSelector(match_labels=label)),
                status=BudgetStatus(desired_healthy=2),
            )
        )
    running = facts("Running", is_ready=True)
    assert found.binding(running) == ()
    assert len(found.allowed([namespace])) == MOST_PER_NAMESPACE
    assert found.drop_budget(namespace, "b000", "u0")
    assert found.binding(running) == (f"{namespace}/b{MOST_PER_NAMESPACE:03}",)
