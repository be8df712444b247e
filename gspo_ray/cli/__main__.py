"""`python -m gspo_ray.cli`."""

import sys

from gspo_ray.cli.main import main

sys.exit(main())
