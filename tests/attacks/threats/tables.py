"""All threats with the functions that make their attempts."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.attacks.attempt import Attempt
from tests.attacks.threats import (
    identity,
    neighbours,
    placing,
    references,
    rights,
    sizes,
    surfaces,
    vendors,
    words,
)

#: Threats that admission policies must stop: they are tried again without the webhook.
IN_PROCESS: Final = ("T3", "T6", "T7", "T8", "T9", "T13", "K2", "K6", "K10", "K20")
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
    "K1": sizes.loud_objects,
    "K2": sizes.large_pods,
    "K5": neighbours.graces,
    "K6": neighbours.compute,
    "K10": vendors.other_names,
    "K11": neighbours.mirrors,
    "K15": neighbours.groups,
    "K20": neighbours.schedulers,
    "K21": neighbours.users,
}
