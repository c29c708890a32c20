"""What an operator that ran is: of which function, phase, layer and kind, and whose gradient it makes."""
