"""`ballast convert`: objects of other schedulers as ours, and a report of what has no counterpart.

One module per peer. Nothing is dropped in silence: each field of a converted object is either taken
by a rule or stands in the report (`fields`).
"""
