"""The pages of docs/reference, generated from the code that they describe."""
