"""Writes to single pods: release, revoke, evict."""
