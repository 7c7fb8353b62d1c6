"""Nodes: their cards by the ledger, their hosts, and what pods take of both."""
