"""Which node and cards a pod gets, what is reserved, and why nothing fits."""
