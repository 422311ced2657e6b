"""Handling somebody else's model: copying it, running it without a trace, patching its modules."""
