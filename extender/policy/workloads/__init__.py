"""Gangs, pending workloads, and the order in which they are scheduled."""
