"""The Philly trace: whole cycles over months, compared with its cluster's record."""
