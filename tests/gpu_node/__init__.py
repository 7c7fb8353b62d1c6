"""A node with a real GPU: the kit that travels to such a machine, and what it shows there.

Kubelet, containerd, NVIDIA's device plugin and container toolkit, the control plane and Ballast's
image are real; the node is prepared as NVIDIA's GPU Operator does it, without the operator.
"""
