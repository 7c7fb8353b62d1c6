"""Hooks for a test run as a whole, in one process or on several workers."""
