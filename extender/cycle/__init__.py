"""Decisions become writes: the controller's loop, its commits, its repairs and its reports."""
