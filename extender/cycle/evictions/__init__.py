"""Evictions beside the cycle: victims, the workloads they make room for, and unledgered pods."""
