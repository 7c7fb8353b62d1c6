"""Shared by all commands: command groups, flags, exit codes and the output of answers."""
