"""The dispatcher for many clusters."""
