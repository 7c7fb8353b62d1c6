"""The vocabulary of Ballast: names, units, reasons and kinds, which all other packages import.

It imports no other package of the project and does no I/O.
"""
