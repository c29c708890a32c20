"""Pure functions from a recording to results; nothing here measures, prints or knows a framework."""
