"""What the arbiter and the native library share: messages and pages of memory.

`layout.h` defines them for C, `wire` for Python; a test compares the two. `pages` holds the two
pages of a container.
"""
