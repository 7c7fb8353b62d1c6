"""Whatever bytes come, the verbs answer, never with 5xx, and the book stays as it was."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.http.book import Book
from extender.http.claim import read_claim
from extender.http.verbs.filter import filter_nodes
from extender.http.wire import ExtenderArgs, decode
from tests.support.builders import gpu_node, part, pod, project, row
from tests.unit.http.rig import Running, running, unreachable_kubeconfig

VERBS = ("filter", "prioritize", "preempt", "bind")
#: Keys of the protocol, so that random documents get past the first check now and then.
# fmt: off
KEYS = (
    "Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID",
    "NumPDBViolations", "PodName", "PodNamespace", "PodUID", "Node", "metadata", "spec",
    "containers", "resources", "requests", "items", "name", "uid", "annotations",
    "schedulingGates", "nvidia.com/gpu", "ballast.dev/gpu-milli", "ballast.dev/plan",
    "gpu-fraction", "gpu-memory",
)
# fmt: on
TEXTS = st.one_of(
    st.sampled_from(["n1", "a", "team-a", "uid-a", "0.5", "1 n1", "1", "", "../x", "0.5\n", "٠.٥"]),
    st.text(max_size=8),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXTS), inner, max_size=6),
    ),
    max_leaves=30,
)
#: Documents that have the outer shape of a call, filled with anything.
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": TEXTS, "uid": TEXTS, "namespace": TEXTS},
            optional={
                "annotations": st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=3),
                "labels": st.dictionaries(TEXTS, TEXTS, max_size=2),
                "deletionTimestamp": TEXTS,
            },
        )
    },
    optional={
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {
                            "resources": st.fixed_dictionaries(
                                {"requests": st.dictionaries(st.sampled_from(KEYS), LEAVES)}
                            )
                        }
                    ),
                    max_size=2,
                ),
                "priority": LEAVES,
                "schedulingGates": DOCUMENTS,
            },
        )
    },
)
CALLS = st.one_of(
    st.fixed_dictionaries({"Pod": PODS, "NodeNames": st.lists(TEXTS, max_size=3)}),
    st.fixed_dictionaries({"Pod": PODS, "Nodes": DOCUMENTS}),
    st.fixed_dictionaries({"Pod": PODS, "NodeNameToMetaVictims": DOCUMENTS}),
    st.fixed_dictionaries(
        {
            "Pod": PODS,
            "NodeNameToMetaVictims": st.dictionaries(
                TEXTS,
                st.fixed_dictionaries(
                    {"Pods": st.lists(st.fixed_dictionaries({"UID": TEXTS}), max_size=2)}
                ),
            ),
        }
    ),
    st.fixed_dictionaries(
        {"PodName": TEXTS, "PodNamespace": TEXTS, "PodUID": TEXTS, "Node": TEXTS}
    ),
    DOCUMENTS,
)


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def cut(body: bytes) -> bytes:
    return body[: len(body) // 2]


SENT = CALLS.map(as_bytes)
BODIES = st.one_of(SENT, SENT.map(cut), st.binary(max_size=64))


def picture(book: Book) -> object:
    """Everything the book says, as a value."""
    holder = pod("h").build().metadata.uid
    return (
        book.node("n1"),
        book.cards.copy(),
        dict(book.rows_of(holder)),
        book.use_of("team-a", "default"),
        len(book),
    )


async def knowing(made: Running) -> None:
    held = row(pod("h").build(), part(0, 500))
    made.know(project("team-a").quota(4).build(), gpu_node("n1", 2).holds(held).build())
    made.be_synced()


@settings(max_examples=80)
@given(calls=st.lists(st.tuples(st.sampled_from(VERBS), BODIES), min_size=1, max_size=8))
def test_no_body_makes_a_verb_fail_or_changes_the_book(calls: list[tuple[str, bytes]]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with running(unreachable_kubeconfig(Path(folder))) as made:
                await knowing(made)
                made.extender.binder.deadline_s = 0.2
                before = picture(made.extender.book)
                for verb, body in calls:
                    status, answer = await made.post(verb, body)
                    assert status in (200, 400), (verb, body, answer)
                    if status == 400:
                        assert answer["Error"]
                assert picture(made.extender.book) == before

    asyncio.run(play())


@settings(max_examples=300)
@given(document=CALLS)
def test_a_filter_answer_keeps_each_sent_name_or_says_why_not(document: Any) -> None:
    try:
        args = decode(as_bytes(document), ExtenderArgs)
    except ValueError:
        return
    book = Book()
    names = list(dict.fromkeys(args.node_names or []))
    verdict = filter_nodes(book, read_claim(args.pod), names)
    told = [*verdict.kept, *verdict.failed, *verdict.unresolvable]
    assert sorted(told) == sorted(names)
