"""A plugin for the Node Resource Interface: runtimes call it before a container starts.

`frames` is ttrpc over one socket, `session` one connection, `adjust` the adjustment of a container,
`plugin` the whole plugin, which reconnects whenever the runtime restarts.
"""
