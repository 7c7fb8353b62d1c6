"""What every command shares: groups, flags, exit codes, and how answers are printed."""
