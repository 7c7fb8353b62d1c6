"""The ledger: rows of GpuNodes, each one pod's hold on cards of one node.

`rows` says what may be written, without I/O; `writer` writes it by compare-and-swap.
docs/ledger.md is the protocol.
"""
