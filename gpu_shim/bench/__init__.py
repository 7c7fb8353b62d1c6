"""What the shim costs and holds on a real GPU: one row for each question, in minutes, without root.

Containers are folders with a socket each; no setting of the GPU is changed.
"""
