"""Joins pods into workloads: their groups and minimums, and successors of moved pods."""
