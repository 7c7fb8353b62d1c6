"""Evictions beside the cycle: victims, the workloads they leave for, and pods without a row."""
