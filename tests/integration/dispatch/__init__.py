"""The dispatcher on real control planes, with Kueue itself."""
