"""Which tenant has the GPU next: pure, exact, time passed in.

`shares` says what part of the time each tenant of a card is due, `leases` turns parts into leases,
`gangs` holds several cards of a node together for tenants that need them at once.
"""
