"""The commands `run`, `hold` and `resume`: they create workloads and hold pending ones."""
