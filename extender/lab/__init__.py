"""Research on the scheduler: published traces replayed through our own decisions.

The container image has no lab. `commands` is the command `ballast replay`; each trace has its own
package.
"""
