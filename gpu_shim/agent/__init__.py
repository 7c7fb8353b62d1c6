"""The node agent: what its node's GpuNode says becomes caps and shares of containers."""
