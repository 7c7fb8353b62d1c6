"""The examples, and the demonstration."""
