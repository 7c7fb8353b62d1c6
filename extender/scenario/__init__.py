"""Scenario files: a cluster, its queues and workloads, and what must be decided on them."""
