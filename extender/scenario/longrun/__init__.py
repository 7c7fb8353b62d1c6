"""Long runs: the cluster of a scenario file over days, with arrivals, ends and lost work."""
