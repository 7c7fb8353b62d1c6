"""The ledger: rows of GpuNodes, each of which holds cards of one node for one pod.

`rows` decides without I/O what may be written; `writer` writes it by compare-and-swap.
docs/ledger.md is the protocol.
"""
