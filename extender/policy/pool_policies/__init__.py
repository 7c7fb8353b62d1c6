"""The policies `demand-weighted` and `priority` of a node pool."""
