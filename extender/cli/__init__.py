"""Commands for people beside the two programs: scenarios, replays of traces, timings."""
