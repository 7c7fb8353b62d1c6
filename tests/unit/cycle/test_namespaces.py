"""Namespaces that get the label for admission policies, and that lose it."""

import pytest

from extender.api.events import Removed, Upserted
from extender.api.names import LABEL_MANAGED, SYSTEM_NAMESPACES
from extender.api.objects import Namespace, ObjectMeta
from extender.cycle.keepers.namespaces import NamespaceKeeper


def keeper(**labels: str) -> NamespaceKeeper:
    """A keeper that saw these namespaces, by name and value of the label."""
    found = NamespaceKeeper(lambda: None)
    for name, value in labels.items():
        see(found, name, value)
    return found


def see(found: NamespaceKeeper, name: str, value: str) -> None:
    listed = {LABEL_MANAGED: value} if value else None
    found.deliver(Upserted(Namespace(ObjectMeta(name=name, labels=listed))))


def test_listed_namespace_is_labelled() -> None:
    assert keeper(vision="", other="").changes({"vision"}) == {"vision": True}


def test_namespace_that_is_no_longer_listed_loses_the_label() -> None:
    assert keeper(vision="true").changes(set()) == {"vision": False}


def test_labelled_as_listed_needs_no_write() -> None:
    assert keeper(vision="true", other="").changes({"vision"}) == {}


def test_namespace_that_does_not_exist_yet_is_labelled_when_it_comes() -> None:
    found = keeper()
    assert found.changes({"vision"}) == {}
    see(found, "vision", "")
    assert found.changes({"vision"}) == {"vision": True}


def test_another_value_stays_unless_a_project_lists_the_namespace() -> None:
    found = keeper(operator="false")
    assert found.changes(set()) == {}
    assert found.changes({"operator"}) == {"operator": True}


@pytest.mark.parametrize("name", SYSTEM_NAMESPACES)
def test_namespace_of_the_cluster_is_never_labelled(name: str) -> None:
    assert keeper(**{name: ""}).changes({name}) == {}
    assert keeper(**{name: "true"}).changes({name}) == {name: False}


def test_namespace_that_is_gone_is_forgotten() -> None:
    found = keeper(vision="")
    found.deliver(Removed(Namespace, "", "", "vision"))
    assert found.changes({"vision"}) == {}


def test_only_a_change_of_the_label_wakes() -> None:
    woken: list[int] = []
    found = NamespaceKeeper(lambda: woken.append(1))
    for value in ("", "", "true", "true"):
        see(found, "vision", value)
    assert len(woken) == 2
