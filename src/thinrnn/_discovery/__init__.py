"""Discovery: from a model and one example call to a Plan."""
