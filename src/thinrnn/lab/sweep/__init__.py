"""Sweeps: many runs of one preset with settings chosen by Optuna.

sweep      starts the workers on this machine, replaces those that die
  worker   asks for a trial, trains it, tells what it reached
    study  trials in a journal file or a database; settings that must not change
    space  which settings vary, from a TOML file
    median stops trials that fall behind
  report   one page
"""

from thinrnn._extras import require

require("sweep", "optuna")
