"""The auditor on a real API server, with a writer that injects faults."""
