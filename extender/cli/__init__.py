"""Commands for people beyond the two programs belong here; there are none yet."""
