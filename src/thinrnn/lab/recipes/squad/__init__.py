"""Machine reading: BiDAF on SQuAD v1.1, dense and pruned."""
