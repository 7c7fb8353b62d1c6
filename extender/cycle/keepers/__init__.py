"""Objects that the controller keeps in step with others: GpuNodes, labels, groups, volumes."""
