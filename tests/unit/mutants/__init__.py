"""The tables of mutants, and a sample of them."""
