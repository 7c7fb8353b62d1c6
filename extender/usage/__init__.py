"""Usage books: GPU-seconds that projects and node pools held, exact and kept for 400 days."""
