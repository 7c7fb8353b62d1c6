"""Controllers of other projects that create gangs, together with all programs of Ballast."""
