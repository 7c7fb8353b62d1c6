"""Figures, not tests: each beside a reference measured in the same run. `make bench`."""
