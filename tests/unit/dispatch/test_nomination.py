"""The fields of a field manager, from the API server's managedFields."""

from typing import Any

import pytest

from extender.dispatch.nomination import owned

WORKLOAD: dict[str, Any] = {
    "metadata": {"name": "train"},
    "spec": {"queueName": "q"},
    "status": {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]},
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
            {"type": "ballast.dev/Dispatched", "status": "True", "reason": "Nominated"},
        ],
        "nominatedClusterNames": ["a"],
        "resourceRequests": [],
    },
}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {}),
        ({"f:status": {"f:nominatedClusterNames": {}}}, {"nominatedClusterNames": ["a"]}),
        (
            {
                "f:status": {
                    "f:admission": {
                        "f:clusterQueue": {},
                        "f:podSetAssignments": {
                            'k:{"name":"main"}': {".": {}, "f:name": {}, "f:count": {}}
                        },
                    },
                    "f:resourceRequests": {},
                    "f:gone": {"f:below": {}},
                }
            },
            {
                "admission": WORKLOAD["status"]["admission"],
                "resourceRequests": [],
            },
        ),
        (
            {
                "f:status": {
                    "f:conditions": {
                        'k:{"type":"QuotaReserved"}': {".": {}, "f:type": {}, "f:status": {}},
                        'k:{"type":"Evicted"}': {".": {}, "f:type": {}},
                    }
                }
            },
            {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
        ),
        ({"f:status": {"f:nominatedClusterNames": {'v:"a"': {}, 'v:"b"': {}}}},
         {"nominatedClusterNames": ["a"]}),
    ],
)  # fmt: skip
def test_only_what_the_record_names_is_taken(fields: dict[str, Any], found: dict[str, Any]) -> None:
    assert owned(WORKLOAD, fields).get("status", {}) == found
