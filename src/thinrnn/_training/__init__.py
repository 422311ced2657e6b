"""Pruner: gates, target and shrinking in somebody else's training loop."""
