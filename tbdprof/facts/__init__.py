"""What a recording holds: facts as the hooks and collectors report them, and the file they are kept in."""
