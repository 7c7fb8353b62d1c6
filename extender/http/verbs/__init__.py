"""The verbs as pure functions on the book: what is asked goes in, what is answered comes out."""
