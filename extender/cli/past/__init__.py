"""The commands `history` and `report`: the history of workloads, and past usage."""
