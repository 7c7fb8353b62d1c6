"""Pods joined into workloads: their group, what it needs to run, and successors of moved pods."""
