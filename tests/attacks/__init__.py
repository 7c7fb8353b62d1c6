"""Attacks by a tenant, or with stolen credentials of a program; none may succeed."""
