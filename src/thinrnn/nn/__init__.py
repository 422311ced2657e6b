"""Modules that users get back or build with: RNNStack, States and RHN."""
