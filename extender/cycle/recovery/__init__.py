"""What is repaired before anything new is decided, and what is held back without kube-scheduler."""
