"""What a pod's own fields say, read once per event and kept instead of the pod."""
