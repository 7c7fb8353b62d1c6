"""Rules for our own kinds: what is impossible is refused, what is odd is warned of."""
