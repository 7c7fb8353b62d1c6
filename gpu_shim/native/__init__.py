"""The libraries that shadow the driver's, in C, and their build."""
