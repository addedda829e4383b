"""The program `walrus`: runs a command and ends with its exit code; one clear line on stderr if it failed."""

import logging
from collections.abc import Sequence

from walrus_client.cli.app import make_app
from walrus_client.cli.exit_codes import exit_code_of
from walrus_client.cli.output import print_note


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `walrus` with *arguments*, or those of the process; always ends with SystemExit."""
    # The library's warnings (a node is left, appends are sent again) are news to the person who waits.
    logging.basicConfig(format="walrus: %(message)s", level=logging.WARNING)
    try:
        make_app()(args=arguments, prog_name="walrus")
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        print_note(f"walrus: {error}")
        raise SystemExit(int(code)) from None


if __name__ == "__main__":
    main()
