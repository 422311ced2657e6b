"""What makes this repository's own pages; not part of the installed package."""
