"""`ballast view`: answers questions of users, as an aggregated API beside the controller."""
