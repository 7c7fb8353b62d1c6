"""The dispatcher of many clusters."""
