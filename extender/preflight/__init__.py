"""`ballast preflight`: whether a cluster meets Ballast's requirements, and what conflicts with it.

`facts` reads the cluster and changes nothing; `cluster`, `nodes` and `workloads` are pure checks of
what was read.
"""
