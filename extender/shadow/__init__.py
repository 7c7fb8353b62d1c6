"""`ballast shadow`: what Ballast would have decided on a cluster that another scheduler runs.

`reading` watches the cluster, `peers` reads what the other scheduler's own objects say, `adoption`
makes the model as if Ballast ran the cluster, `record` folds one look after the other into the
report, and `page` writes it as HTML. Nothing is written to the cluster.
"""
