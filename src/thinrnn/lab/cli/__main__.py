"""python -m thinrnn.lab.cli"""

from thinrnn.lab.cli import main

main()
