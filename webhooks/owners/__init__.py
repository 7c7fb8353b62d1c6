"""The owners of a pod, and the gang that follows from them."""
