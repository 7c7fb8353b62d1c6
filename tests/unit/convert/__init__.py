"""`ballast convert`."""
