"""The state of all cards, and the hand-overs that happen without Python.

`handover` owns the state and changes it; `event_loop` is the thread that calls it when a message
arrives or a time has come. `events` are the values that Python exchanges with both.
"""
