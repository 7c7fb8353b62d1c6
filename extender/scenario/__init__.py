"""Scenario files: a cluster, its queues and workloads, and the expected decisions."""
