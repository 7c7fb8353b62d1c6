"""Names are valid in Kubernetes, and tables of names agree."""

import re

import pytest

from extender.api import aliases, demand, names

_PREFIXED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")


@pytest.mark.parametrize(
    "key",
    [
        *(
            value
            for name, value in vars(names).items()
            if name.startswith(("LABEL_", "ANNOTATION"))
        ),
        *aliases.PROJECT_LABELS,
        *aliases.GROUP_LABELS,
        *aliases.PREEMPTIBILITY_LABELS,
        *demand.GPU_ANNOTATIONS,
        names.GATE,
        names.GPU_MILLI,
    ],
)
def test_key_is_a_qualified_name(key: str) -> None:
    assert _PREFIXED.fullmatch(key)


def test_our_own_keys_come_first_among_their_aliases() -> None:
    assert aliases.PROJECT_LABELS[0] == names.LABEL_PROJECT
    assert aliases.GROUP_LABELS[0] == names.LABEL_POD_GROUP
    assert aliases.PREEMPTIBILITY_LABELS[0] == names.LABEL_PREEMPTIBILITY


def test_every_kind_of_work_has_a_priority_class_of_its_own() -> None:
    assert set(names.CLASS_OF_KIND) == set(names.KINDS)
    assert sorted(names.CLASS_OF_KIND.values()) == sorted(names.PRIORITY_CLASSES)


def test_every_alias_stands_for_a_class_of_ours() -> None:
    assert set(names.CLASS_ALIASES.values()) <= set(names.PRIORITY_CLASSES)
    assert not set(names.CLASS_ALIASES) & set(names.PRIORITY_CLASSES)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train", None, "ballast-training"),
        ("train", 50, "ballast-training"),
        ("train", 200, "train"),
        ("ballast-training", 50, "ballast-training"),
        ("mine", 7, "mine"),
    ],
)
def test_alias_is_our_class_unless_its_value_is_another(
    name: str, value: int | None, expected: str
) -> None:
    assert names.class_of(name, value) == expected


@pytest.mark.parametrize(
    ("priority", "word", "is_preemptible"),
    [
        (50, "", True),
        (99, "", True),
        (100, "", False),
        (125, "preemptible", True),
        (50, "non-preemptible", False),
    ],
)
def test_explicit_word_decides_before_the_priority(
    priority: int, word: str, is_preemptible: bool
) -> None:
    assert names.is_preemptible(priority, word) is is_preemptible
