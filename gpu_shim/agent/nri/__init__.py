"""Our side of the Node Resource Interface: what container runtimes ask before a container starts.

`frames` is ttrpc over one socket, `session` one connection, `adjust` what a container gets,
`plugin` the whole of it, connected again whenever the runtime restarts.
"""
