"""Finished runs as small JSON files, and the pages that are written from them.

a run folder ── publish ── results/NAME.json ── RESULTS.md, the table in the README
                           results/NAME.svg, results/models/NAME
"""
