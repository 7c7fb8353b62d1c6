"""Judges judged: small errors put into the programs, each of which a named test must notice.

The tables (`*.toml`) hold one error each: the file, the text that is replaced, what replaces it,
what that breaks in one sentence, and the test that fails then. `python -m tests.mutants` applies
them one at a time to a copy of the tree. One that survives is a finding: a test is missing, or
the line is needless.
"""
