"""`ballast shadow`: the decisions that Ballast would make on a cluster with another scheduler.

`reading` watches the cluster, `peers` reads the other scheduler's own objects, `adoption` builds
the model as if Ballast ran the cluster, `record` accumulates looks into the report, and `page`
writes it as HTML. Nothing is written to the cluster.
"""
