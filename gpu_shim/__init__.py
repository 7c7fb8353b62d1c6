"""The node side: memory caps and time slices for every container that shares a card.

`policy` decides which container is next, `arbiter` opens and closes the containers' gates, `native`
runs inside them, `protocol` connects the two. `agent` follows the ledger, `cases` checks all of it
against scenarios.
"""
