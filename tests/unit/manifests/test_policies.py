"""Resources in the admission policies agree with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import aliases, demand, names
from extender.api.demand import mig_slices
from webhooks.forbidden import NETWORK_CARDS, POWERS

MANIFESTS = Path(__file__).parents[3] / "manifests" / "base"
POLICIES = MANIFESTS / "policies"
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


def expression(policy: str, name: str) -> str:
    """What a variable of a policy is computed by."""
    for document in yaml.safe_load_all((POLICIES / f"{policy}.yaml").read_text("utf-8")):
        for each in document["spec"].get("variables", ()):
            if each["name"] == name:
                return str(each["expression"])
    raise AssertionError(f"{policy} has no variable {name}")


def variable(policy: str, name: str) -> Any:
    """The literal that a variable of a policy is."""
    return yaml.safe_load(expression(policy, name))


def pattern_in(text: str) -> str:
    """The one pattern of an expression."""
    (quoted,) = re.findall(r"\.matches\(\s*'([^']*)'\)", text)
    return str(quoted).replace("\\\\", "\\")


@pytest.mark.parametrize("name", [*MIG, *NOT_COUNTED])
def test_policy_counts_the_instances_that_the_code_counts(name: str) -> None:
    counted = re.fullmatch(pattern_in(expression("gpu-pods", "uncounted")), name) is not None
    assert counted is (mig_slices(name) > 0)
    assert mig_slices(name) == MIG.get(name, 0)


def test_aliases_of_our_labels_are_as_fixed_as_these() -> None:
    fixed = (
        aliases.PROJECT_LABELS,
        aliases.GROUP_LABELS,
        aliases.SUB_GROUP_LABELS,
        aliases.USER_LABELS,
        aliases.PREEMPTIBILITY_LABELS,
    )
    foreign = {key for keys in fixed for key in keys if not key.startswith(names.GROUP)}
    assert foreign == set(variable("reserved", "claimed"))


def test_every_name_for_a_share_of_a_card_is_guarded() -> None:
    text = (POLICIES / "gpu-pods.yaml").read_text("utf-8")
    assert [key for key in demand.SHARE_ANNOTATIONS if f"'{key}'" not in text] == []


def test_network_cards_of_which_no_author_is_warned_are_those_of_the_policy() -> None:
    assert list(NETWORK_CARDS) == variable("gpu-pods", "notAccelerators")


def test_powers_of_which_an_author_is_warned_are_those_of_the_policy() -> None:
    assert list(POWERS) == variable("gpu-pods", "tooMuch")


def test_patterns_are_literals_which_the_api_server_compiles_once() -> None:
    """One in a variable costs it a millisecond for each pod that is created."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        text = path.read_text("utf-8")
        used = re.findall(r"\.matches\(\s*(r?'|\S{1,40})", text)
        assert [each for each in used if each not in ("'", "r'")] == [], path.name


def test_creation_is_asked_about_each_annotation_that_only_ballast_writes() -> None:
    """A pod without these passes the policy `reserved` by its match condition."""
    (policy, *_) = yaml.safe_load_all((POLICIES / "reserved.yaml").read_text("utf-8"))
    (condition,) = policy["spec"]["matchConditions"]
    *_, listed = re.findall(r"k in (\[[^]]*\])", condition["expression"])
    assert yaml.safe_load(listed) == variable("reserved", "decided")
