"""`ballast dispatch`: on MultiKueue's manager cluster, names the cluster that a Workload goes to.

Each worker cluster is asked, by its `simulations`, whether the Workload would start there now and
within quota, and how many pods would stop for it; `ranking` has the rule by which the answers are
compared. Kueue does the rest: it copies the Workload to the nominated cluster, and the Job once
that cluster has admitted it.
"""
