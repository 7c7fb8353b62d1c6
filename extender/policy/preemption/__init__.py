"""Which pods to evict or move for a pending workload."""
