"""Tables of attempts, one module for related threats of the threat model (docs/threats.md)."""
