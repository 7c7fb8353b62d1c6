"""The model of the cluster, by examples."""
