"""The Philly trace: whole cycles over months, beside what its cluster did."""
