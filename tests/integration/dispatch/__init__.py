"""The dispatcher on real control planes, with a real Kueue."""
