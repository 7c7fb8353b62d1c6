"""The control plane fixture itself: it is real, it is empty, it survives faults, it ends."""
