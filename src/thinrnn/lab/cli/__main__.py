"""python -m thinrnn.cli"""

from thinrnn.lab.cli import main

main()
