"""What a pod says of itself, read once per event and kept instead of the pod."""
