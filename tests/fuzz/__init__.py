"""Every parser against inputs that are nearly good: it answers or refuses in words, never crashes.

BALLAST_FUZZ is how many inputs each parser gets (docs/development.md); in CI a few hundred.
"""
