"""The arbiter: one process on the node that opens and closes the gates of all containers.

`wire` and `pages` are what it shares with the native library, `referee` decides, `server` does; the
thread of `relay` does at the right moment what was decided ahead (`turns`, in Cython).
"""
