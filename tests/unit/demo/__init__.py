"""The examples, and what the demonstration makes of them."""
