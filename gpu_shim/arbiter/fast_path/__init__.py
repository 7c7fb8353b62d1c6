"""The state of all cards, and hand-overs without Python.

`slots` owns the state and knows containers and their processes; `handover` changes it at messages
and as the scheduler plans; `event_loop` is the thread that calls it at messages and planned times.
`events` are the values that Python exchanges with them.
"""
