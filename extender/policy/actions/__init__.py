"""The stages of a cycle: allocate, consolidate, reclaim, preempt, stale gangs."""
