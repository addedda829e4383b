"""`python -m walrus_operator run | crds | rbac | values-schema`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Run the operator, or write what is generated from its models and tables. Only `run` loads the clients."""
    parser = argparse.ArgumentParser(prog="walrus-operator", description="Keeps Kubernetes as a WalrusCluster says.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run the operator; its options are environment variables WALRUS_OPERATOR_*")
    crds = commands.add_parser("crds", help="write the CustomResourceDefinitions, or print them")
    crds.add_argument("--to", type=Path, default=Path("crds"), metavar="FOLDER", help="where to (default: crds)")
    crds.add_argument("--print", action="store_true", help="to standard output instead")
    commands.add_parser("rbac", help="print the rules of the operator's roles")
    commands.add_parser("values-schema", help="print the JSON schema of the values of charts/walrus")
    chosen = parser.parse_args()
    if chosen.command == "crds":
        from walrus_operator.api import crdgen

        for name, text in crdgen.definitions().items():
            if chosen.print:
                sys.stdout.write(f"---\n{text}")
            else:
                (chosen.to / name).write_text(text)
    elif chosen.command == "rbac":
        from walrus_operator.rbac import rules_yaml

        sys.stdout.write(rules_yaml())
    elif chosen.command == "values-schema":
        from walrus_operator.api.crdgen import values_schema

        sys.stdout.write(json.dumps(values_schema(), indent=2) + "\n")
    else:
        from walrus_operator.main import run

        return run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
