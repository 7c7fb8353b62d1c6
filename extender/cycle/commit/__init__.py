"""A plan becomes writes: rows first, then evictions and releases."""
