"""Completion in shells, and the names of objects that it offers."""
