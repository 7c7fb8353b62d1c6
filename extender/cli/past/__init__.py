"""The commands `history` and `report`: what happened to work, and what was used."""
