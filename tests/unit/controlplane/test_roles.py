"""Aggregated roles, before and after their aggregation."""

from typing import Any

from tests.support.controlplane.roles import are_added_up

LABEL = "example.com/aggregate-to-view"
READ, WRITE = ({"verbs": [verb], "resources": ["pods"]} for verb in ("get", "create"))


def role(*rules: Any, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "part", "labels": labels}, "rules": list(rules) or None}


def total(*rules: Any) -> dict[str, Any]:
    selectors = [{"matchLabels": {LABEL: "true"}}]
    return role(*rules) | {"aggregationRule": {"clusterRoleSelectors": selectors}}


def test_a_sum_has_the_rules_of_its_parts_and_of_no_other() -> None:
    parts = [role(READ, **{LABEL: "true"}), role(WRITE), role(WRITE, **{LABEL: "false"})]
    assert not are_added_up([total(), *parts])
    assert are_added_up([total(READ), *parts])


def test_a_part_that_came_later_is_waited_for() -> None:
    parts = [role(READ, **{LABEL: "true"}), role(WRITE, **{LABEL: "true"})]
    assert not are_added_up([total(READ), *parts])
    assert are_added_up([total(READ, WRITE), *parts])


def test_a_part_that_is_gone_is_waited_for() -> None:
    assert not are_added_up([total(READ, WRITE), role(READ, **{LABEL: "true"})])


def test_a_sum_may_be_part_of_another() -> None:
    both = total(READ)
    both["metadata"]["labels"] = {"example.com/aggregate-to-edit": "true"}
    edit = role()
    edit["aggregationRule"] = {
        "clusterRoleSelectors": [{"matchLabels": {"example.com/aggregate-to-edit": "true"}}]
    }
    assert not are_added_up([both, edit, role(READ, **{LABEL: "true"})])
    edit["rules"] = [READ]
    assert are_added_up([both, edit, role(READ, **{LABEL: "true"})])
