"""Places pods on nodes and cards, keeps backfill reservations, and explains why pods do not fit."""
