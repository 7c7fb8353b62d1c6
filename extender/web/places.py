"""The namespaces that a page shows if its user names none."""

from dataclasses import dataclass

from extender.web.questions import NoAnswerError, Questions


@dataclass(slots=True, frozen=True)
class Places:
    """`chosen` namespaces, at least one, of the `known` ones, which projects list."""

    chosen: list[str]
    known: list[str]


async def places(ask: Questions, default: str, named: list[str]) -> Places:
    """The `named` namespaces; else `default` if a project lists it; else those whose queue the user
    may read, or `default`. Raises NoAnswerError if there are none."""
    known = sorted({name for each in await ask.projects() for name in each.spec.namespaces})
    chosen = named or ([default] if default in known else [])
    if not chosen:
        chosen = await ask.readable(known) or ([default] if default else [])
    if not chosen:
        raise NoAnswerError(
            "There is no namespace of a project whose work you may see. Kubernetes' role view in"
            " one of them is enough.",
            404,
        )
    return Places(chosen, known)
