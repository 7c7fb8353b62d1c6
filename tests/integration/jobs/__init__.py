"""Controllers of other projects that create gangs, beside everything of ours."""
