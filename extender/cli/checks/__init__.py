"""The command `preflight`: what a cluster has and lacks for Ballast."""
