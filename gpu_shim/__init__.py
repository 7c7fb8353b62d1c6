"""The node side: memory caps and time slices for every container that shares a card.

Nothing is here yet. Until it is, a fraction is placed and counted exactly, and enforced by nothing.
"""
