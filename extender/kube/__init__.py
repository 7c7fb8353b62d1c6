"""Access to the API server: a typed client, reflectors, the leader's Lease, and events.

The only package that imports `kubernetes_asyncio`, and only for addresses, TLS and credentials.
Bodies go from bytes to the projections of `extender.api` in one step; Kubernetes objects are
never kept. What is decided from them lives above (`extender.state`, `extender.cycle`).
"""
