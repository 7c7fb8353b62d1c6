"""The same cases in a file and on a real control plane."""
