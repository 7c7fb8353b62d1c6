"""Shell completion of commands, flags and object names."""
