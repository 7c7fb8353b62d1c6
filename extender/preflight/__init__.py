"""`ballast preflight`: whether a cluster has what Ballast needs, and what in it would disagree.

`facts` reads the cluster and changes nothing; `cluster`, `nodes` and `workloads` judge what was
read and are pure.
"""
