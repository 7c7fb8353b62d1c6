"""The judge of every decided cycle: rules that hold whatever a case expects.

`rules` is the door. The rules are written from the documentation of Kubernetes and of the scenario
format, independently of `extender.policy`, so that each checks the other.
"""
