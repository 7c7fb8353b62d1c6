"""Which container has a card next: `scheduler` decides, `card_slots` is its view of the state."""
