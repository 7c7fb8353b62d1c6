"""Cases of time on one card: read, run in virtual time or on real processes, compared."""
