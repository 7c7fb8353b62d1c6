"""Validation of Ballast's own kinds: refuses impossible objects, and warns about odd ones."""
