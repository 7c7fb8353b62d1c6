"""Faults under load: the installed programs on the real control plane, faults drawn from a seed.

`stage` starts the programs, `load` submits and deletes workloads, `kinds` has the faults, and
`trial` runs them one after the other under the auditor. Safety is judged by the auditor, liveness
by deadlines: after each fault a new pod within quota is bound, and at every check point all pods
that can run are bound, each with its row, and there are no other rows.
"""
