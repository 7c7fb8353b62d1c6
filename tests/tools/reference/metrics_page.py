"""docs/reference/metrics.md: all metrics of our programs, from the default registry.

Each server of the webhooks has its own registry, so their metrics are read from the source.
"""

import ast
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from prometheus_client import REGISTRY

from gpu_shim.agent.observe import FIGURES

INTRO = """# Metrics

Served at `/metrics` by `control`, `serve`, `view`, the webhooks and the node agents. The metrics
to watch, and the alerts on them, are listed in [operations](../operations.md).

| metric | type | labels | meaning |
|---|---|---|---|
"""
#: Packages whose modules define metrics.
_PACKAGES = ("extender", "webhooks", "gpu_shim")
_OWN_REGISTRIES = Path(__file__).parents[3] / "webhooks"
_KINDS = {"Gauge": "gauge", "Histogram": "histogram"}
#: Modules that run a program when they are imported.
_PROGRAMS = "__main__"


def page() -> str:
    """The page's text. Imports every module of the three packages."""
    for package in _PACKAGES:
        _import_all(importlib.import_module(package))
    rows = []
    for collector in list(REGISTRY._collector_to_names):
        for metric in collector.collect():
            if metric.name.startswith("ballast_"):
                labels = getattr(metric, "_labelnames", getattr(collector, "_labelnames", ()))
                name = metric.name + ("_total" if metric.type == "counter" else "")
                rows.append(_row(name, metric.type, labels, metric.documentation))
    rows += _rows_in_source(_OWN_REGISTRIES)
    for name, (text, labels, is_counter) in FIGURES.items():
        full, kind = (f"{name}_total", "counter") if is_counter else (name, "gauge")
        rows.append(_row(f"ballast_{full}", kind, labels, text))
    return INTRO + "\n".join(sorted(rows)) + "\n"


def _rows_in_source(folder: Path) -> Iterator[str]:
    """A row for each call with a metric's name, its description and its labels."""
    for module in sorted(folder.rglob("*.py")):
        for call in ast.walk(ast.parse(module.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            given = [_literal(each) for each in call.args]
            match given:
                case [str(name), str(text), *rest] if name.startswith("ballast_"):
                    labels = rest[0] if rest and isinstance(rest[0], list) else []
                    yield _row(name, _KINDS.get(call.func.id, "counter"), labels, text)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _row(name: str, kind: str, labels: Iterable[str], text: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(f'`{each}`' for each in labels)} | {text} |"


def _import_all(package: ModuleType) -> None:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(_PROGRAMS):
            importlib.import_module(found.name)
