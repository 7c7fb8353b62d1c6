"""What a tenant, or a thief of a program's credentials, tries against others; none may succeed."""
