"""Finished runs as small JSON files, and the pages that are written from them.

a run folder -- publish -- results/EXPERIMENT/NAME.json -- pages -- RESULTS.md, README, docs
                           results/EXPERIMENT/NAME.svg, results/models/NAME
"""
