"""What is carried to a machine with a GPU to see whether the libraries hold on a real driver.

`make gpu-kit` makes the folder (`make`); there, `run PART` runs the steps of a part (`parts`,
`runner`). A step is a program that prints one JSON object for each result (`results`).
"""
