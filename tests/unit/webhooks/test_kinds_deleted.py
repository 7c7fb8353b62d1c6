"""Warnings about the deletion of our own kinds."""

import pytest

from tests.unit.webhooks.test_kinds import Body, decision, gpu, known


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("GpuDepartment", "research", "speech, vision belong"),
        ("GpuNodePool", "a100", "have figures in"),
    ],
)
def test_deletion_of_what_is_in_use_is_warned_of(kind: str, name: str, words: str) -> None:
    index = known(
        GpuProject_speech={"department": "research", "nodePools": [gpu("a100")]},
        GpuProject_vision={"department": "research"},
    )
    found = decision(kind, {}, index, name=name, before={}, operation="DELETE")
    assert found.is_allowed
    assert words in found.warnings[0]


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"timeSlicing": {"mode": "Fair"}}, "loses timeSlicing, "),
        ({"policy": "Priority", "memoryLending": "Enabled"}, "loses memoryLending, policy, "),
        ({"timeSlicing": {"mode": "Disabled"}}, ""),
        ({}, ""),
    ],
)
def test_deletion_of_the_pool_default_is_warned_of_where_settings_go(
    spec: Body, warned: str
) -> None:
    for name in ("default", "a100"):
        found = decision("GpuNodePool", {}, name=name, before=spec, operation="DELETE")
        told = [each for each in found.warnings if "the pool default stays" in each]
        assert (found.is_allowed, len(told)) == (True, bool(warned) and name == "default")
        assert warned in "".join(told) or name != "default"
