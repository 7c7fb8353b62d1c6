"""The vocabulary of Ballast: names, units, reasons, kinds. A leaf: it imports nothing of ours.

Nothing here does I/O. Everything else in the project agrees by importing from here.
"""
