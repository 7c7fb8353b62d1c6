"""Objects that the controller keeps consistent: GpuNodes, labels, groups, volumes."""
