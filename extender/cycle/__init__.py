"""Turns decisions into writes: the controller's loop, its commits, repairs and reports."""
