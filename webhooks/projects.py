"""Which project a namespace belongs to, from a watch of the Projects. Look-ups never block."""

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuProject
from extender.api.reasons import Reason, Refused
from webhooks.catalog import Catalog


class ProjectIndex:
    """The Projects as last seen, by the namespaces they list. Only `deliver` changes it.

    `catalog` holds the objects of the same events by name.
    """

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.is_synced = False
        self._by_uid: dict[str, GpuProject] = {}
        self._of_namespace: dict[str, dict[str, GpuProject]] = {}

    def deliver(self, event: Event) -> None:
        """Applies an event of a reflector."""
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
        """The project of a pod in `namespace` whose label names `asked`, or that has no such label.

        None: no project lists the namespace and the label is absent. A namespace belongs to the
        oldest project that lists it. The refusal does not reveal whether another project exists.
        """
        listed = self._of_namespace.get(namespace, {})
        owner = min(listed.values(), key=_age, default=None)
        if not asked or (owner is not None and asked == owner.metadata.name):
            return owner
        may = f"; it may use {owner.metadata.name}" if owner else ""
        detail = f"namespace {namespace} may not use project {asked!r:.80}{may}"
        return Refused(Reason.UNKNOWN_PROJECT, detail)

    def _forget(self, uid: str) -> None:
        project = self._by_uid.pop(uid, None)
        if project is None:
            return
        name = project.metadata.name
        for namespace in project.spec.namespaces:
            listed = self._of_namespace.get(namespace, {})
            if name in listed and listed[name].metadata.uid == uid:
                del listed[name]
            if not listed:
                self._of_namespace.pop(namespace, None)


def _age(project: GpuProject) -> tuple[float, str]:
    """The sort key of projects that list one namespace: the first one owns it."""
    made = project.metadata.creation_timestamp
    return made.timestamp() if made else 0.0, project.metadata.name
