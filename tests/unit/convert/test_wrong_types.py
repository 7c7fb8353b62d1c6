"""Peers' objects with nulls and wrong types: converted, or refused with object and field."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from extender.convert import hami, kai, kueue, runai, slurm, volcano
from extender.convert.fields import Converted, Manifest
from tests.unit.convert.accepted import objects
from tests.unit.convert.queues_of_peers import KAI, KUEUE, RUNAI, VOLCANO
from tests.unit.convert.test_work_of_peers import HAMI, KAI_WORK, SCRIPT, VCJOB

Convert = Callable[[Iterable[Manifest]], Converted]

WRONG: Final[tuple[Any, ...]] = (None, 5, -1.5, True, "x", "", [], [None], [3], {}, {"a": None})
PEERS: Final[dict[str, tuple[Convert, str]]] = {
    "kai": (kai.convert, KAI),
    "kai work": (kai.convert, KAI_WORK),
    "kueue": (kueue.convert, KUEUE),
    "runai": (runai.convert, RUNAI),
    "volcano": (volcano.convert, VOLCANO),
    "volcano work": (volcano.convert, VCJOB),
    "hami": (hami.convert, HAMI),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all that is in the documents, but not of the documents themselves."""
    if len(path) > 1:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in pairs:
        if isinstance(each, dict | list):
            yield from places(each, (*path, key))
        else:
            yield (*path, key)


def with_value(told: list[Manifest], path: tuple[Any, ...], value: Any) -> list[Manifest]:
    made: Any = copy.deepcopy(told)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    found: list[Manifest] = made
    return found


def refusal(convert: Convert, told: list[Manifest]) -> str:
    """What is said against the objects; empty: they are converted."""
    try:
        convert(told)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("peer", PEERS)
def test_a_wrong_type_is_converted_or_refused_by_object_and_field(peer: str) -> None:
    convert, text = PEERS[peer]
    told = objects(text)
    for path in places(told):
        for value in WRONG:
            said = refusal(convert, with_value(told, path, value))
            field = [key for key in path[1:] if isinstance(key, str)][-1]
            if said:
                assert re.search(r"(is not|it has to be) ", said), (path, value, said)
                assert field in said, (path, value, said)


def test_texts_of_slurm_without_a_part_are_read() -> None:
    account = "Cluster - 'c'\nParent - 'root'\nAccount - 'a':Fairshare=2:GrpTRES=gres/gpu=8\n"
    table = "Account|User|GrpTRES|Share\na||gres/gpu=8|2\na|ann||1\n"
    for text in (account, table, SCRIPT):
        pieces = re.split(r"([\n:|=,'])", text)
        for i in range(len(pieces)):
            for piece in ("", "x", "-1"):
                slurm.convert({"f": "".join([*pieces[:i], piece, *pieces[i + 1 :]])})


def test_a_key_that_is_no_text_is_refused_by_object_and_field() -> None:
    told = objects(VOLCANO)
    queue = next(each for each in told if "deserved" in each.get("spec", {}))
    queue["spec"]["deserved"] = {5: 6, "cpu": 4}
    named = f"Queue {queue['metadata']['name']}"
    with pytest.raises(ValueError, match=f"^{named}: spec.deserved: the key 5 is not a text$"):
        volcano.convert(told)


def test_a_null_quota_of_kueue_is_refused_by_its_name() -> None:
    text = KUEUE.replace("nominalQuota: 8", "nominalQuota: null")
    with pytest.raises(ValueError, match=r"ClusterQueue vision: spec.*nominalQuota is missing"):
        kueue.convert(objects(text))
