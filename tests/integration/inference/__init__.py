"""Replicas of a Deployment under real autoscaling."""
