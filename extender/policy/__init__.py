"""Decisions: pure functions from a snapshot to a plan.

Nothing here does I/O, logs or reads a clock; the same snapshot gives the same plan, whatever the
order of its mappings. `decide.decide` is the only door.
"""
