"""Admission: what a pod is made into before it is stored, and what is refused."""
