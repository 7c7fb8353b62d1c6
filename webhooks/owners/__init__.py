"""The owners of a pod, and the gang that they imply."""
