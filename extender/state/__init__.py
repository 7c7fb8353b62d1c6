"""The model of the cluster, its snapshots, and the ledger of who holds which card."""
