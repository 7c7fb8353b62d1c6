"""A kit that checks on a machine with a GPU whether the libraries work with a real driver.

`make gpu-kit` creates the folder (`make`); there, `run PART` runs the steps of a part (`parts`,
`runner`). A step is a program that prints one JSON object for each result (`results`).
"""
