"""Profile the loops of other people's libraries: a callback for each library, imported with it alone."""
