"""Handling a user's model: copy it, run it without side effects, patch its modules."""
