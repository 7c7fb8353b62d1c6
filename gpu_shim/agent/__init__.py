"""The node agent: applies its node's GpuNode as caps and shares of containers."""
