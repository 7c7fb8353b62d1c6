"""The four boards: projects, queue and waits, cluster and fragments, machinery.

Not looked at in Grafana.
"""

from collections.abc import Sequence
from typing import Final

from manifests.boards.board import Board, Panel, Query

#: Projects only: a department holds what its projects hold.
_PROJECTS: Final = 'queue!~"department/.*",queue=~"$project"'
_POOL: Final = 'node_pool=~"$pool"'
_CHOICES: Final = {
    "project": 'label_values(ballast_queue_held_gpus{queue!~"department/.*"}, queue)',
    "pool": "label_values(ballast_pool_gpus, node_pool)",
}


def _of_queues(name: str) -> str:
    return f"sum by (queue) ({name}{{{_PROJECTS},{_POOL}}})"


def _rate_of_queues(name: str) -> str:
    return f"sum by (queue) (rate({name}{{{_PROJECTS},{_POOL}}}[5m]))"


PROJECTS: Final = Board(
    "ballast-projects",
    "Projects",
    [
        Panel(
            "GPUs held",
            [Query(_of_queues("ballast_queue_held_gpus"), "{{queue}}")],
            is_stacked=True,
        ),
        Panel("Quota", [Query(_of_queues("ballast_queue_quota_gpus"), "{{queue}}")]),
        Panel(
            "Owed and held",
            [
                Query(_of_queues("ballast_queue_owed_gpus"), "{{queue}} owed"),
                Query(_of_queues("ballast_queue_held_gpus"), "{{queue}} held"),
            ],
            "Owed is the smaller of fair share and request.",
        ),
        Panel(
            "Borrowed above quota",
            [Query(_of_queues("ballast_queue_borrowed_gpus"), "{{queue}}")],
            is_stacked=True,
        ),
        Panel(
            "Held less than owed, in GPUs",
            [Query(_rate_of_queues("ballast_queue_deprived_gpu_seconds_total"), "{{queue}}")],
        ),
        Panel(
            "In quota and above it, in GPUs",
            [
                Query(_rate_of_queues("ballast_queue_in_quota_gpu_seconds_total"), "{{queue}}"),
                Query(
                    _rate_of_queues("ballast_queue_over_quota_gpu_seconds_total"),
                    "{{queue}} above quota",
                ),
            ],
            is_stacked=True,
        ),
        Panel(
            "Work lost to evictions, in GPUs",
            [
                Query(
                    "sum by (project) (rate("
                    'ballast_control_lost_gpu_seconds_total{project=~"$project"}[1h]))',
                    "{{project}}",
                )
            ],
            "GPU-seconds of lost work for each second.",
        ),
        Panel(
            "Evicted pods by beneficiary, in an hour",
            [
                Query(
                    "sum by (project, beneficiary, reason) (increase("
                    'ballast_control_evicted_pods_total{project=~"$project"}[1h]))',
                    "{{project}} for {{beneficiary}}: {{reason}}",
                )
            ],
        ),
        Panel(
            "Did the beneficiary run?",
            [
                Query(
                    "sum by (beneficiary, ran) (increase("
                    "ballast_control_settled_evictions_total[1h]))",
                    "{{beneficiary}}: {{ran}}",
                )
            ],
        ),
    ],
    _CHOICES,
)

QUEUE: Final = Board(
    "ballast-queue",
    "Queue and waits",
    [
        Panel(
            "Workloads that wait, by reason",
            [
                Query(
                    'sum by (reason) (ballast_queue_pending_workloads{queue=~"$project"})',
                    "{{reason}}",
                )
            ],
            is_stacked=True,
        ),
        Panel(
            "Workloads that wait, by project",
            [
                Query(
                    'sum by (queue) (ballast_queue_pending_workloads{queue=~"$project"})',
                    "{{queue}}",
                )
            ],
            is_stacked=True,
        ),
        Panel(
            "GPUs asked for and not held",
            [
                Query(
                    f"{_of_queues('ballast_queue_requested_gpus')}"
                    f" - {_of_queues('ballast_queue_held_gpus')}",
                    "{{queue}}",
                )
            ],
            is_stacked=True,
        ),
        *(
            Panel(
                f"Wait of a pod until its place, {words}",
                [
                    Query(
                        f"histogram_quantile({quantile}, sum by (le, project) (rate("
                        'ballast_control_pod_wait_seconds_bucket{project=~"$project"}[30m])))',
                        "{{project}}",
                    )
                ],
                unit="s",
            )
            for words, quantile in (("median", 0.5), ("90th percentile", 0.9))
        ),
        Panel(
            "Places given, in an hour",
            [
                Query(
                    "sum by (project) (increase("
                    'ballast_control_pod_wait_seconds_count{project=~"$project"}[1h]))',
                    "{{project}}",
                )
            ],
        ),
    ],
    _CHOICES,
)

CLUSTER: Final = Board(
    "ballast-cluster",
    "Cluster and fragments",
    [
        Panel(
            "GPUs",
            [Query(f"sum by (state) (ballast_pool_gpus{{{_POOL}}})", "{{state}}")],
            "free_pieces are on cards that are partly used.",
            is_stacked=True,
        ),
        Panel(
            "Held, of all healthy cards",
            [
                Query(
                    f'sum by (node_pool) (ballast_pool_gpus{{{_POOL},state="held"}})'
                    f" / sum by (node_pool) (ballast_pool_gpus{{{_POOL}}})",
                    "{{node_pool}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Free in pieces, of all that is free",
            [
                Query(
                    f'sum by (node_pool) (ballast_pool_gpus{{{_POOL},state="free_pieces"}})'
                    " / clamp_min("
                    f'sum by (node_pool) (ballast_pool_gpus{{{_POOL},state!="held"}}), 0.001)',
                    "{{node_pool}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Idle while work waits, in GPUs",
            [
                Query(
                    f"rate(ballast_pool_idle_while_waiting_gpu_seconds_total{{{_POOL}}}[5m])",
                    "{{node_pool}}",
                )
            ],
        ),
        Panel(
            "Fairness (Jain's index)",
            [Query(f"ballast_pool_fairness_index{{{_POOL}}}", "{{node_pool}}")],
            "1: all projects hold the same part of what they are owed.",
        ),
        Panel(
            "GPUs without a row in the ledger",
            [Query("max by (managed) (ballast_control_foreign_gpus)", "managed: {{managed}}")],
        ),
    ],
    {"pool": _CHOICES["pool"]},
)

MACHINERY: Final = Board(
    "ballast-machinery",
    "Machinery",
    [
        Panel("Replicas that decide", [Query("sum(ballast_control_is_leader)", "leaders")]),
        Panel(
            "Cycles",
            [Query("sum by (result) (rate(ballast_control_cycles_total[5m]))", "{{result}}")],
            unit="ops",
        ),
        Panel(
            "Time of a cycle, 90th percentile",
            [
                Query(
                    "histogram_quantile(0.9, sum by (le, part) (rate("
                    "ballast_control_cycle_duration_seconds_bucket[5m])))",
                    "{{part}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Calls of kube-scheduler",
            [
                Query(
                    "sum by (verb, result) (rate(ballast_extender_requests_total[5m]))",
                    "{{verb}}: {{result}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            "Time of a call, 99th percentile",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, verb) (rate("
                    "ballast_extender_request_duration_seconds_bucket[5m])))",
                    "{{verb}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Writes of the ledger, and conflicts",
            [
                Query("sum(rate(ballast_ledger_writes_total[5m]))", "writes"),
                Query("sum(rate(ballast_ledger_conflicts_total[5m]))", "conflicts"),
            ],
            unit="ops",
        ),
        Panel(
            "Released pods",
            [
                Query(
                    "sum by (result) (rate(ballast_control_released_pods_total[5m]))", "{{result}}"
                )
            ],
            unit="ops",
        ),
        Panel(
            "Silence of the oldest watch",
            [
                Query(
                    "time() - min by (resource) (ballast_kube_reflector_heard_timestamp_seconds)",
                    "{{resource}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Age of the usage records",
            [
                Query(
                    "time() - max(ballast_usage_counted_to_timestamp_seconds)",
                    "counted up to",
                )
            ],
            unit="s",
        ),
    ],
)

BOARDS: Final[Sequence[Board]] = (PROJECTS, QUEUE, CLUSTER, MACHINERY)
