"""Commands for people: a room for each kind of command, above `ask` and `terminal`."""
