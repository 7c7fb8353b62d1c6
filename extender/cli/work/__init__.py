"""The commands `run`, `hold` and `resume`: making work, and keeping it from starting."""
