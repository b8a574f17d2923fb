import sys

from undrift.cli import main

sys.exit(main())
