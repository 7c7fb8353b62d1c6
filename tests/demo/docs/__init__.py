"""Runs all commands in the documentation, as printed, on the demonstration."""
