"""`ballast dispatch`: nominates a worker cluster for each Workload of MultiKueue's manager cluster.

Each worker cluster is asked, by its `simulations`, whether the Workload would start there now and
within quota, and how many pods would be evicted for it; `ranking` compares the answers. Kueue does
the rest: it copies the Workload to the nominated cluster, and the Job once that cluster has
admitted it.
"""
