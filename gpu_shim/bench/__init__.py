"""Measures on a real GPU what the shim costs and enforces: a row per question, without root.

A row takes minutes. Containers are folders with a socket each; no setting of the GPU is changed.
"""
