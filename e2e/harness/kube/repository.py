"""Where what users apply and install is in this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"
CHARTS = ROOT / "charts"
