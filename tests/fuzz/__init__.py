"""Fuzzes all parsers with slightly damaged inputs: they answer or refuse in words, but never crash.

BALLAST_FUZZ is the number of inputs per parser (docs/development.md); in CI a few hundred.
"""
