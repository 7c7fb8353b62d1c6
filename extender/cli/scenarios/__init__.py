"""Commands on clusters described in files: `scenario`, `simulate`, `snapshot` and `bench`."""
