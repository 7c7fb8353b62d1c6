"""The node side: memory caps and time slices for every container that shares a card.

`policy` decides whose turn it is, `native` is what runs inside containers, `arbiter` opens and
closes their gates, `agent` follows the ledger, `cases` checks all of it against scenarios.
"""
