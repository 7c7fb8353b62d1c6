"""Commands on clusters in files: `scenario`, `simulate`, `snapshot` and `bench`."""
