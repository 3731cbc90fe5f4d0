"""`python -m paceline` is the `paceline` command."""

import sys

from paceline.cli.main import main

sys.exit(main())
