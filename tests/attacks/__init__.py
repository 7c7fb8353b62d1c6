"""What a tenant, or whoever stole a program's login, tries against others; none may succeed."""
