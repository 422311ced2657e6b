"""Benchmarks: each is a program, `python -m benchmarks.NAME`, and writes to results/speed/."""
