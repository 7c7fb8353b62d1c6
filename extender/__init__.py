"""The scheduler extender and the controller: what runs, on which node, on which cards.

Packages, lowest first: `api` (vocabulary), `kube` (API server access) and `kernels` (Cython),
`state` (the model and the ledger), `policy` (pure decisions), then `cycle` (decisions become
writes), `http` (the extender's verbs) and `cli`.
"""
