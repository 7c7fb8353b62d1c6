"""The command `top`: which projects, nodes, GPUs and pods hold GPU capacity now."""
