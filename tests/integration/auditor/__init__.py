"""The auditor on a real API server, with a writer that commits faults on purpose."""
