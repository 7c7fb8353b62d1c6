"""Nodes: their cards by the ledger, their hosts, and what pods hold of both."""
