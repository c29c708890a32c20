"""The purpose of an operator that ran: its function, phase, layer and kind, and whose gradient it computes."""
