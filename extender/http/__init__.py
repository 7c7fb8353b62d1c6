"""`ballast serve`: the four verbs of a kube-scheduler extender, and how they are listened to."""
