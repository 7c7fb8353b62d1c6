"""The format of a scenario file: one Struct for each kind of mapping, with the defaults.

The meaning of a mapping is documented where it is used: `world` (jobs), `cluster` (nodes, queues),
`expect`.
"""
