"""What the policies know of resources agrees with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import demand, names
from extender.api.demand import mig_slices

POLICIES = Path(__file__).parents[3] / "manifests" / "base" / "policies"
MIG = {
    "nvidia.com/mig-1g.10gb": 1,
    "nvidia.com/mig-2g.20gb.me": 2,
    "nvidia.com/mig-1g.24gb.gfx": 1,
    "nvidia.com/mig-1g.24gb.me.all": 1,
    "nvidia.com/mig-1c.3g.20gb": 1,
    "nvidia.com/mig-7g.80gb": 7,
}
NOT_COUNTED = (
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb.shared",
    "nvidia.com/mig-0g.10gb",
    "nvidia.com/mig-9g.10gb",
    "nvidia.com/mig-1g.10gb\n",
    "xnvidia.com/mig-1g.10gb",
)


def variable(policy: str, name: str) -> Any:
    """The literal that a variable of a policy is."""
    for document in yaml.safe_load_all((POLICIES / f"{policy}.yaml").read_text("utf-8")):
        for each in document["spec"]["variables"]:
            if each["name"] == name:
                return yaml.safe_load(each["expression"].replace("\\\\", "\\"))
    raise AssertionError(f"{policy} has no variable {name}")


@pytest.mark.parametrize("name", [*MIG, *NOT_COUNTED])
def test_policy_counts_the_instances_that_the_code_counts(name: str) -> None:
    counted = re.fullmatch(variable("gpu-pods", "counted"), name) is not None
    assert counted is (mig_slices(name) > 0)
    assert mig_slices(name) == MIG.get(name, 0)


def test_aliases_of_our_labels_are_as_fixed_as_these() -> None:
    aliases = (
        demand.PROJECT_LABELS,
        demand.GROUP_LABELS,
        demand.SUB_GROUP_LABELS,
        demand.USER_LABELS,
        demand.PREEMPTIBILITY_LABELS,
    )
    foreign = {key for keys in aliases for key in keys if not key.startswith(names.GROUP)}
    assert foreign == set(variable("reserved", "claimed"))


@pytest.mark.parametrize("policy", ["gpu-pods", "managed-pods"])
def test_every_name_for_a_share_of_a_card_is_guarded(policy: str) -> None:
    text = (POLICIES / f"{policy}.yaml").read_text("utf-8")
    assert [key for key in demand.SHARE_ANNOTATIONS if f"'{key}'" not in text] == []
