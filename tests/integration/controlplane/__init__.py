"""The control plane fixture: it is real and empty, survives faults, and ends."""
