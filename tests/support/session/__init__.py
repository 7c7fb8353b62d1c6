"""What concerns a test run as a whole, on one process or on several workers."""
