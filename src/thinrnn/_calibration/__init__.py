"""Pruning a trained model from a few batches: statistics, scores, refitted weights."""
