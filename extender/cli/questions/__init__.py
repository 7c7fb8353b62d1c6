"""The commands `why`, `queue` and `shares`, and the text of their answers."""
