"""What people see of a decision: status, conditions and events."""
