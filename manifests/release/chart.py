"""The Helm chart, made of the overlays as kustomize renders them.

The overlays stay the one source. An object that is the same in all of them is written as it is;
one that only some of them have, or have otherwise, stands behind the value that chooses between
them. No object may depend on two values at once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]
Key = tuple[str, str, str]

NAME: Final = "ballast"
OUR_IMAGE: Final = "localhost/ballast"
BASE: Final = "default"
DEFINITIONS: Final = "crds"
#: Value of the chart -> the overlay that shows what it changes, and whether it does so when it is
#: true. `default` is rendered with none of them changed.
SWITCHES: Final = {
    "nodeAgent": ("without-gpu-shim", False),
    "highAvailability": ("high-availability", True),
}
#: Value of the chart -> the overlay whose objects it adds.
ADDITIONS: Final = {
    "view": "view",
    "dispatch": "dispatch",
    "monitoring": "monitoring",
    "priorityClassAliases": "priority-class-aliases",
}
OVERLAYS: Final = (
    BASE,
    DEFINITIONS,
    *(overlay for overlay, _ in SWITCHES.values()),
    *ADDITIONS.values(),
)


class ChartError(Exception):
    """The overlays cannot be expressed as one chart."""


@dataclass(slots=True, frozen=True)
class Images:
    """Image references as they stand in the rendered objects."""

    ours: str
    scheduler: str

    @classmethod
    def of(cls, documents: Iterable[Document]) -> "Images":
        """The two images of the Deployments; ChartError if either is not there exactly once."""
        found = {
            container["image"]
            for each in documents
            if each["kind"] in ("Deployment", "DaemonSet")
            for container in each["spec"]["template"]["spec"]["containers"]
        }
        ours = [each for each in found if each.startswith(f"{OUR_IMAGE}:")]
        others = [each for each in found if each not in ours]
        if len(ours) != 1 or len(others) != 1:
            raise ChartError(
                f"want our image and kube-scheduler's, have {', '.join(sorted(found))}"
            )
        return cls(ours[0], others[0])


def write_chart(folder: Path, rendered: Mapping[str, list[Document]], version: str) -> None:
    """Write the chart into `folder` from overlay name -> its objects."""
    images = Images.of(rendered[BASE])
    (folder / "templates").mkdir(parents=True)
    (folder / "crds").mkdir()
    (folder / "Chart.yaml").write_text(_chart_yaml(version), "utf-8")
    (folder / "values.yaml").write_text(_values_yaml(images), "utf-8")
    (folder / "values.schema.json").write_text(json.dumps(_values_schema(), indent=1), "utf-8")
    for each in rendered[DEFINITIONS]:
        file = folder / "crds" / f"{each['metadata']['name'].split('.', 1)[0]}.yaml"
        file.write_text(yaml.safe_dump(each, sort_keys=False), "utf-8")
    for name, text in _templates(rendered, images).items():
        (folder / "templates" / name).write_text(text, "utf-8")


def _templates(rendered: Mapping[str, list[Document]], images: Images) -> dict[str, str]:
    base = _by_key(rendered[BASE])
    variants = {value: _by_key(rendered[overlay]) for value, (overlay, _) in SWITCHES.items()}
    parts = []
    for key in dict.fromkeys([*base, *(key for each in variants.values() for key in each)]):
        changed = [value for value, each in variants.items() if each.get(key) != base.get(key)]
        if len(changed) > 1:
            raise ChartError(f"{'/'.join(key)} depends on {' and '.join(changed)}")
        if changed:
            _, is_variant_when = SWITCHES[changed[0]]
            branches = [variants[changed[0]].get(key), base.get(key)]
            if not is_variant_when:
                branches.reverse()
            parts.append(_choice(changed[0], branches[0], branches[1], images))
        else:
            parts.append(_object(base[key], images))
    templates = {"ballast.yaml": "".join(parts)}
    for value, overlay in ADDITIONS.items():
        body = "".join(_object(each, images) for each in rendered[overlay])
        templates[f"{overlay}.yaml"] = (
            f"{{{{- if .Values.{value}.enabled }}}}\n{body}{{{{- end }}}}\n"
        )
    return templates


def _choice(value: str, yes: Document | None, no: Document | None, images: Images) -> str:
    """Template text of an object that depends on a value; None is an object that is not there."""
    if yes is None:
        return f"{{{{- if not .Values.{value}.enabled }}}}\n{_object(no, images)}{{{{- end }}}}\n"
    text = f"{{{{- if .Values.{value}.enabled }}}}\n{_object(yes, images)}"
    if no is not None:
        text += f"{{{{- else }}}}\n{_object(no, images)}"
    return text + "{{- end }}\n"


def _object(document: Document | None, images: Images) -> str:
    text = yaml.safe_dump(document, sort_keys=False, width=1000)
    escaped = text.replace("{{", '{{ "{{" }}')
    image = "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
    return "---\n" + escaped.replace(images.ours, image).replace(
        images.scheduler, "{{ .Values.scheduler.image }}"
    )


def _by_key(documents: Iterable[Document]) -> dict[Key, Document]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in documents
    }


def _chart_yaml(version: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": NAME,
            "description": "GPU sharing and fair share for Kubernetes, on the stock kube-scheduler",
            "type": "application",
            "version": version,
            "appVersion": version,
            "kubeVersion": ">=1.32.0-0",
        },
        sort_keys=False,
    )


def _values_yaml(images: Images) -> str:
    repository, tag = images.ours.rsplit(":", 1)
    return f"""\
# The image of all programs of Ballast. It has to be on the nodes, or in a registry they reach.
image:
  repository: {repository}
  tag: {tag}
# kube-scheduler must not be newer than the API server.
scheduler:
  image: {images.scheduler}
# The DaemonSet that enforces shares of a card. Without it they are only counted.
nodeAgent:
  enabled: true
# A second replica of everything, on another node; needs two nodes without GPUs.
highAvailability:
  enabled: false
# The aggregated API behind kubectl ballast why, queue, shares and whatif.
view:
  enabled: false
# On a manager cluster of MultiKueue: sends work to the cluster where it starts soonest.
dispatch:
  enabled: false
# ServiceMonitors and alerts; needs the Prometheus operator.
monitoring:
  enabled: false
# The priority classes of Run:ai and KAI under their own names.
priorityClassAliases:
  enabled: false
"""


def _values_schema() -> Document:
    """What Helm accepts as values: those of values.yaml, and no others."""
    text = {"type": "string", "minLength": 1}
    switch = _closed({"enabled": {"type": "boolean"}})
    values = {
        "image": _closed({"repository": text, "tag": text}),
        "scheduler": _closed({"image": text}),
        **dict.fromkeys((*SWITCHES, *ADDITIONS), switch),
        # Where the chart is a part of another one, Helm adds what is common to all parts.
        "global": {"type": "object"},
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | _closed(values)


def _closed(properties: Document) -> Document:
    """The schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}
