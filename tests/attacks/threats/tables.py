"""The threats of the tables, each with what makes its attempts."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.attacks.attempt import Attempt
from tests.attacks.threats import identity, placing, references, rights, surfaces, words

TABLES: Final[dict[str, Callable[[], Iterator[Attempt]]]] = {
    "T1": identity.claims,
    "T2": identity.priorities,
    "T3": words.numbers,
    "T4": words.edits,
    "T5": words.forgeries,
    "T6": placing.opt_outs,
    "T7": placing.placements,
    "T8": surfaces.environments,
    "T9": surfaces.fields,
    "T13": surfaces.hosts,
    "T17": references.paths,
    "T18": references.references,
    "T19": references.texts,
    "T20": references.floods,
    "T22": rights.secrets,
    "T23": rights.logins,
    "T24": rights.images,
    "T26": rights.nodes,
}
