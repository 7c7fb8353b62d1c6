"""The table of kinds is consistent, and agrees with the rights of the webhooks."""

from pathlib import Path

import yaml

from webhooks.claims import READ as CLAIMS
from webhooks.native_groups import POD_GROUP
from webhooks.owners.table import BY_KIND, TABLE

RIGHTS = Path(__file__).parents[3] / "manifests" / "base" / "rbac" / "webhooks.yaml"


def test_owners_that_are_read_are_those_that_may_be_read() -> None:
    (role,) = [
        each
        for each in yaml.safe_load_all(RIGHTS.read_text("utf-8"))
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "ballast-webhooks")
    ]
    may_get = {
        (group, plural)
        for rule in role["rules"]
        if rule["verbs"] == ["get"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    read = (*TABLE, POD_GROUP, *CLAIMS)
    assert may_get == {(kind.api_group, kind.plural) for kind in read if kind.plural}


def test_kinds_that_are_read_say_where_and_what() -> None:
    for kind in TABLE:
        assert bool(kind.plural) == bool(kind.version), kind.kind
        assert not kind.climbs or kind.plural, kind.kind


def test_kind_that_is_listed_twice_is_read_alike() -> None:
    for kind in TABLE:
        last = BY_KIND[kind.api_group, kind.kind]
        assert kind.plural in ("", last.plural)
        assert kind.claim is not None or kind is last
