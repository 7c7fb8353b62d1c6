"""The libraries that stand in front of the driver's, in C, and how they are built."""
