"""The command `top`: what holds GPUs now."""
