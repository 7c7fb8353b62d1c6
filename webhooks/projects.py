"""Which project a namespace belongs to, from a watch of the Projects. No look-up ever waits."""

from extender.api.demand import PROJECT_LABELS
from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuProject
from extender.api.reasons import Reason, Refused
from webhooks.catalog import Catalog


class ProjectIndex:
    """The Projects as last seen, by the namespaces they list. `deliver` is its only door.

    `catalog` has them and what they name, by name, from the same events.
    """

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.is_synced = False
        self._by_uid: dict[str, GpuProject] = {}
        self._of_namespace: dict[str, dict[str, GpuProject]] = {}

    def deliver(self, event: Event) -> None:
        """Takes what the reflectors tell."""
        self.catalog.deliver(event)
        match event:
            case Upserted(GpuProject() as project):
                self._forget(project.metadata.uid)
                self._by_uid[project.metadata.uid] = project
                for namespace in project.spec.namespaces:
                    listed = self._of_namespace.setdefault(namespace, {})
                    listed[project.metadata.name] = project
            case Removed():
                self._forget(event.uid)
            case Synced() if event.kind is GpuProject:
                self.is_synced = True
            case _:
                pass

    def project_of(self, namespace: str, asked: str = "") -> GpuProject | Refused | None:
        """The project of a pod in `namespace` whose labels ask for `asked`, or for none.

        None: no project lists the namespace and none was asked for. A refusal is the same whether
        the project asked for does not exist or belongs to others, so it tells nothing of them.
        """
        listed = self._of_namespace.get(namespace, {})
        if asked:
            if project := listed.get(asked):
                return project
            may = f"; it may use {_names(listed)}" if listed else ""
            detail = f"namespace {namespace} may not use project {asked!r:.80}{may}"
            return Refused(Reason.UNKNOWN_PROJECT, detail)
        if len(listed) > 1:
            detail = (
                f"namespace {namespace} belongs to {_names(listed)}:"
                f" name one with the label {PROJECT_LABELS[0]}"
            )
            return Refused(Reason.UNKNOWN_PROJECT, detail)
        return next(iter(listed.values()), None)

    def _forget(self, uid: str) -> None:
        project = self._by_uid.pop(uid, None)
        for namespace in project.spec.namespaces if project else ():
            listed = self._of_namespace.get(namespace, {})
            known = listed.get(project.metadata.name) if project else None
            if known is not None and known.metadata.uid == uid:
                del listed[known.metadata.name]
            if not listed:
                self._of_namespace.pop(namespace, None)


def _names(listed: dict[str, GpuProject]) -> str:
    return " or ".join(sorted(listed))
