"""The command `preflight`: checks whether a cluster meets Ballast's requirements."""
