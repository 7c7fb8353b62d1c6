"""Reads the input of `ballast convert` from files, standard input or a cluster, and converts it."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from extender.cli.ask import ask, listed_or_none
from extender.cli.terminal.flags import Where
from extender.cli.terminal.output import plain
from extender.convert import hami, kai, kueue, runai, slurm, volcano
from extender.convert.fields import (
    Converted,
    Manifest,
    UnreadableError,
    documents_of,
    read_documents,
)
from extender.kube.client import Client

_ENDINGS: Final = (".yaml", ".yml", ".json")
_OBJECTS: Final[Mapping[str, Callable[[Iterable[Manifest]], Converted]]] = {
    "kai": kai.convert,
    "runai": runai.convert,
    "kueue": kueue.convert,
    "hami": hami.convert,
    "volcano": volcano.convert,
}
_LIVE: Final = {"kai": kai.LIVE, "kueue": kueue.LIVE, "volcano": volcano.LIVE}


def read_and_convert(peer: str, files: tuple[Path, ...], where: Where) -> Converted:
    """The converted objects of the files or the cluster; raises ClickException, also if there is
    nothing to convert."""
    done = _converted(peer, files, where)
    if not (done.objects or done.lost):
        for note in done.notes:
            click.echo(f"Note: {plain(note)}", err=True)
        raise click.ClickException(f"{_source(files)}: there is nothing of {peer} to convert")
    return done


def _converted(peer: str, files: tuple[Path, ...], where: Where) -> Converted:
    if not files and peer not in _LIVE:
        raise click.UsageError(f"--from {peer} needs files: give -f")
    try:
        if peer == "slurm":
            return slurm.convert(dict(_texts(files)))
        found = list(_objects(files)) if files else ask(where, lambda each: _live(each, peer))
        return _OBJECTS[peer](found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # A ValueError has a whole sentence; other errors need their class name.
        message = (
            str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        )
        raise click.ClickException(
            f"{_source(files)}: an object is malformed for {peer}: {message}"
        ) from error


def _source(files: tuple[Path, ...]) -> str:
    return ", ".join(map(str, files)) or "the cluster"


def _texts(files: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    for path in files:
        if str(path) == "-":
            yield "-", sys.stdin.read()
            continue
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            if file.is_file():
                yield str(file), _text_of(file)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"{file}: not UTF-8 text") from None


def _objects(files: tuple[Path, ...]) -> Iterator[Manifest]:
    for name, text in _texts(files):
        if name != "-" and Path(name) not in files and not name.endswith(_ENDINGS):
            continue
        try:
            documents = read_documents(text)
        except UnreadableError as error:
            raise click.ClickException(f"{name}: {plain(str(error))}") from None
        yield from documents_of(documents)


async def _live(client: Client, peer: str) -> list[Manifest]:
    """The cluster's objects of the peer's kinds; kinds that it does not have are skipped."""
    found: list[Manifest] = []
    for served in _LIVE[peer]:
        for version in served.versions:
            root = f"{served.group}/{version}"
            items = await listed_or_none(client, f"/apis/{root}/{served.plural}")
            if items is None:
                continue
            kind = _KINDS[served.plural]
            # Items of a list have no apiVersion and kind.
            found += ({"apiVersion": root, "kind": kind, **each} for each in items)
            break
    if not found:
        message = f"this cluster has no objects of {peer}, or you may not list them"
        raise click.ClickException(message)
    return found


_KINDS: Final = {
    "queues": "Queue",
    "podgroups": "PodGroup",
    "topologies": "Topology",
    "schedulingshards": "SchedulingShard",
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "resourceflavors": "ResourceFlavor",
    "localqueues": "LocalQueue",
    "workloadpriorityclasses": "WorkloadPriorityClass",
    "jobs": "Job",
}
