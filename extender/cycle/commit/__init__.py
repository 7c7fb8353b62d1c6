"""Carries out a plan: rows first, then evictions and releases."""
