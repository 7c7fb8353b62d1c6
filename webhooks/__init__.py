"""Admission: how pods and Jobs are changed before they are stored, and what is refused."""
