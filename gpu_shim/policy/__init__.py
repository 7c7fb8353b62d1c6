"""Decides which tenant gets the GPU next: pure, exact, with the time passed in.

`shares` computes each tenant's part of a card's time, `leases` turns parts into leases, `gangs`
coordinates several cards of a node for tenants that need them at once.
"""
