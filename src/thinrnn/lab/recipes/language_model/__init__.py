"""Language models: from text to a small fast model."""
