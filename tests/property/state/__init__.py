"""The model of the cluster under random histories."""
