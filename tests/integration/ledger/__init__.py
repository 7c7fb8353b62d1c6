"""The ledger on a real API server."""
