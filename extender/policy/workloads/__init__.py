"""What waits: gangs, pending workloads, the order in which they have their turn."""
