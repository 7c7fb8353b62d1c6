"""Every command that the documentation prints, run as printed on the demonstration."""
