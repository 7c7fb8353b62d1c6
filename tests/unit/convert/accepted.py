"""Checks converted objects against our kinds and Kubernetes' own types."""

import functools
from typing import TYPE_CHECKING, Any

import yaml

from extender.api import names
from extender.api.kinds import KINDS
from extender.api.schema import schema
from extender.convert.fields import Converted, Manifest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Objects = list[Manifest]


@functools.cache
def _validator(kind: str) -> "Draft202012Validator":
    """Of the spec of a kind of ours."""
    # To import it takes a second, which every worker of a run would pay for.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    (struct,) = (each for each in KINDS if each.__name__ == kind)
    found: Any = schema(struct)
    return Draft202012Validator(_closed(found["properties"]["spec"]))


def _closed(told: Any) -> Any:
    """The schema with objects that take no other fields: the API server would drop these."""
    if isinstance(told, list):
        return [_closed(each) for each in told]
    if not isinstance(told, dict):
        return told
    made = {key: _closed(each) for key, each in told.items()}
    if "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


def assert_spec(kind: str, spec: Any) -> None:
    """The spec is as the CRD of this kind of ours has it, without other fields."""
    _validator(kind).validate(spec)


def assert_accepted(done: Converted) -> None:
    """Every object of ours is as its CRD has it, and says so again after a way through YAML."""
    assert done.objects
    for told in yaml.safe_load_all("---\n".join(map(yaml.safe_dump, done.objects))):
        if told["apiVersion"] == names.API_VERSION:
            assert_spec(told["kind"], told["spec"])


def of_kind(done: Converted, kind: str) -> dict[str, Manifest]:
    """The objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in done.objects if each["kind"] == kind}


def lost(done: Converted) -> list[str]:
    """What has no counterpart, as text."""
    return [str(each) for each in done.lost]


def objects(text: str) -> Objects:
    """The documents of a YAML text."""
    return list(yaml.safe_load_all(text))
