"""The verbs as pure functions on the book."""
