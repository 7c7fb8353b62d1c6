"""Cases of time-slicing on one card: loaded, run in virtual time or on real processes, compared."""
