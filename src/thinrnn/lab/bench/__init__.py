"""Models compared across runtimes, threads and shapes: time, memory and file size."""
