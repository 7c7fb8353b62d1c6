"""Fuzzes all parsers with slightly damaged inputs: a parser answers or refuses, but never crashes.

BALLAST_FUZZ is the number of inputs per parser (docs/development.md); in CI a few hundred.
"""
