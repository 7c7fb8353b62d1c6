"""Access to the API server: a typed client, reflectors, the leader's Lease, and events.

Only this package imports `kubernetes_asyncio`, and only for addresses, TLS and credentials. Bodies
are decoded straight into the projections of `extender.api`; Kubernetes objects are never kept.
Decisions are made in packages above (`extender.state`, `extender.cycle`).
"""
