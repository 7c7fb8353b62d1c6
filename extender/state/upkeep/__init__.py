"""Ledger rows that do not match their pods, and where each live pod is kept."""
