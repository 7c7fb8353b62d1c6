"""`ballast convert`: converts objects of other schedulers, and reports what has no counterpart.

One module per scheduler. Nothing is dropped silently: each field of a converted object is either
taken by a rule or reported (`fields`).
"""
