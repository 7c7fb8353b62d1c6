"""The command `convert`: objects of other schedulers as ours."""
