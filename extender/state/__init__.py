"""The model of the cluster and its snapshots, without I/O."""
