"""What was recorded: the records, their names, and the file they are kept in."""
