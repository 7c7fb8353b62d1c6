"""Shows decisions to users: status, conditions and events."""
