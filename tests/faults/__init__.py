"""Faults under load: the installed programs on the real control plane, faults drawn from a seed.

`stage` starts everything, `load` keeps submitting and deleting work, `kinds` are the faults, and
`trial` runs them one after the other under the auditor. Safety is the auditor's verdict. Liveness
is a deadline: after each fault a new pod within quota is bound, and at every check point all pods
that can run are bound, each with its row, and no row is left.
"""
