"""The commands `why`, `queue` and `shares`, and how their answers are said."""
