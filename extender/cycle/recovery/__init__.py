"""Repairs before each decision, and what is held back while kube-scheduler is down."""
