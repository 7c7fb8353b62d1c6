"""The arbiter: one process per node that opens and closes the launch gates of all containers.

`scheduler` decides which container has a card next. `fast_path` owns the state of every card and
carries out, on a thread of its own and without the GIL, what was decided ahead. `container` accepts
the processes of one container, `arbiter` puts these parts together.
"""
