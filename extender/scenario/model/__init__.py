"""The scenario file as it is written: one Struct for each kind of mapping, with the defaults.

What a mapping means is said where it is used: `world` (jobs), `cluster` (nodes, queues), `expect`.
"""
