"""Trainers that prune while they train; each module needs the trainer that it is named after."""
