"""The demonstration: a slice of a production trace on a simulated cluster, in under three minutes.

`python -m tests.demo`. Everything except the nodes is real: etcd, kube-apiserver, kube-scheduler,
kube-controller-manager, and Ballast's three processes; kwok simulates the kubelets.
"""
