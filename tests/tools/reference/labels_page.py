"""docs/reference/labels.md: Ballast's labels, annotations and other names on objects, from
`extender.api.names` and the manifests."""

import re
from pathlib import Path

from extender.api import names

INTRO = """# Labels, annotations and other names

What Ballast reads or writes on pods, namespaces, nodes and its own objects. Labels and annotations
of other schedulers that it reads are listed in [objects](../objects.md#what-a-pod-says).

| name | kind | meaning |
|---|---|---|
"""
#: Names that only manifests use.
_IN_MANIFESTS = (
    '| `ballast.dev/allow-deletion` | annotation | "true" on a GpuProject, GpuDepartment,'
    " GpuNodePool or CRD of Ballast: it may be deleted while it is in use. |",
    "| `ballast.dev/priority-class-alias` | label | On a priority class that the overlay"
    " `priority-class-aliases` created: Ballast's class of the same value. |",
)
_DEFINED = re.compile(r'((?:^#: ?.*\n)*)^([A-Z_]+): Final = "(ballast\.dev/[^"]+)"', re.MULTILINE)
_KINDS = {
    "LABEL": "label",
    "ANNOTATION": "annotation",
    "CONDITION": "condition",
    "GATE": "scheduling gate",
    "GPU": "resource",
}


def page() -> str:
    """The page's text."""
    source = Path(names.__file__).read_text("utf-8")
    rows = [
        f"| `{name}` | {_kind_of(constant)} | {_meaning(comment)} |"
        for comment, constant, name in _DEFINED.findall(source)
    ]
    return INTRO + "\n".join(sorted((*rows, *_IN_MANIFESTS))) + "\n"


def _kind_of(constant: str) -> str:
    return _KINDS.get(constant.split("_", maxsplit=1)[0], "name")


def _meaning(comment: str) -> str:
    text = " ".join(line.removeprefix("#:").strip() for line in comment.splitlines())
    return text.replace("|", "\\|")
