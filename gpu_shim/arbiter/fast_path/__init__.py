"""The state of all cards, and hand-overs without Python.

`handover` owns the state and changes it; `event_loop` is the thread that calls it at messages and
planned times. `events` are the values that Python exchanges with both.
"""
