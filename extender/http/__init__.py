"""`ballast serve`: the four verbs of a kube-scheduler extender, and the server for them."""
