"""Published traces replayed through our own decisions, and what comes out beside the references."""
