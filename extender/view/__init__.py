"""`ballast view`: answers for people, as an aggregated API beside the controller."""
