"""What ran, how many FLOPs it did, and how well it used the device."""
