"""The protocol between the arbiter and the native library: messages and shared pages.

`layout.h` defines them for C, `wire` for Python; a test compares the two. `pages` holds the two
pages of a container.
"""
