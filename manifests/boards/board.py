"""What a board is made of, and its JSON in the form that Grafana 9 and newer import."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

#: Grafana's grid is 24 units wide; a panel is a third of it.
_WIDTH: Final = 8
_HEIGHT: Final = 8
_PER_ROW: Final = 3
#: Of the dashboard's JSON.
_SCHEMA: Final = 38
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Unit = Literal["none", "s", "percentunit", "ops", "h", "short", "bytes"]


@dataclass(slots=True, frozen=True)
class Query:
    """One expression, and what its series are called in the legend."""

    expr: str
    legend: str


@dataclass(slots=True, frozen=True)
class Panel:
    """A chart over time. `text` says what to see in it."""

    title: str
    queries: Sequence[Query]
    text: str = ""
    unit: Unit = "short"
    is_stacked: bool = False


@dataclass(slots=True, frozen=True)
class Board:
    """A board; `uid` names it in links and files, `variables` are label values to choose from."""

    uid: str
    title: str
    panels: Sequence[Panel]
    variables: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The dashboard as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": f"Ballast / {self.title}",
            "tags": ["ballast"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {
                "list": [_source(), *(_variable(*each) for each in self.variables.items())]
            },
            "panels": [_panel(at, panel) for at, panel in enumerate(self.panels)],
        }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(at: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(at, _PER_ROW)
    stacking = "normal" if panel.is_stacked else "none"
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {
                    "fillOpacity": 20 if panel.is_stacked else 0,
                    "stacking": {"mode": stacking},
                },
            },
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": query.expr,
                "legendFormat": query.legend,
                "datasource": _SOURCE,
            }
            for number, query in enumerate(panel.queries)
        ],
    }
