"""The command `convert`: converts objects of other schedulers to Ballast's."""
