"""python -m thinrnn.cli"""

from thinrnn.cli import main

main()
