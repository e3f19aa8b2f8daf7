"""What every test needs: figures without a screen."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")
