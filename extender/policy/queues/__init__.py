"""The queue tree of each node pool, its fair shares, and past usage."""
