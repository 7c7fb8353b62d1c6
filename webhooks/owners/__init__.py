"""Who made a pod, and which other pods it therefore needs."""
