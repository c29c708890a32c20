"""The facts of a recording, as hooks and collectors report them, and the file that holds them."""
