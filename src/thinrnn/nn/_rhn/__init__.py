"""Fast paths of the recurrent highway network on a GPU."""
