"""Which cluster a command talks to, and how it answers: from its options, the environment, or the local cluster.

Options may stand before the command, as in the original (`walrus --addr HOST:PORT put ...`), or behind it.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from walrus_client import errors
from walrus_client.admin import AdminClient
from walrus_client.cli.output import Output
from walrus_client.client import Client
from walrus_client.dev import state
from walrus_client.transport import parse_addresses

TEXT_DEFAULT = "127.0.0.1:8080"
GRPC_DEFAULT = "127.0.0.1:9090"
ADMIN_DEFAULT = "127.0.0.1:9091"
RETRY_TIMEOUT_MS = 5_000  # a person waits; enough for a leader to move

AddrOption = Annotated[
    str | None,
    typer.Option(
        "--addr",
        envvar="WALRUS_ADDR",
        metavar="HOST:PORT",
        show_default=False,
        help=f"Client port (text protocol) of a node, or several with commas. [default: the cluster of"
        f" {state.DEFAULT_DIRECTORY} if there is one, else {TEXT_DEFAULT}]",
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="WALRUS_BOOTSTRAP",
        metavar="HOST:PORT",
        show_default=False,
        help=f"gRPC port of a node, or several with commas. [default: the cluster of"
        f" {state.DEFAULT_DIRECTORY} if there is one, else {GRPC_DEFAULT}]",
    ),
]

AdminOption = Annotated[
    str | None,
    typer.Option(
        "--admin",
        envvar="WALRUS_ADMIN",
        metavar="HOST:PORT",
        show_default=False,
        help=f"Admin port of a node, or several with commas. [default: the cluster of"
        f" {state.DEFAULT_DIRECTORY} if there is one, else {ADMIN_DEFAULT}]",
    ),
]


SecretFileOption = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        envvar="WALRUS_SECRET_FILE",
        metavar="PATH",
        show_default=False,
        help="The nodes' --secret-file, for commands that change something. [default: that of the cluster of"
        f" {state.DEFAULT_DIRECTORY}, where it is the one that is asked]",
    ),
]


@dataclass(frozen=True, slots=True)
class Target:
    """The options that stand before the command; those behind it come first."""

    addr: str | None = None
    bootstrap: str | None = None
    output: Output | None = None
    secret_file: Path | None = None


def text_addresses(context: typer.Context, addr: str | None) -> str:
    """Return where the text protocol is spoken."""
    return _checked(addr or _target(context).addr or _local("text") or TEXT_DEFAULT, "--addr")


def grpc_addresses(context: typer.Context, bootstrap: str | None) -> str:
    """Return where gRPC is spoken."""
    return _checked(bootstrap or _target(context).bootstrap or _local("grpc") or GRPC_DEFAULT, "--bootstrap")


def admin_addresses(admin: str | None) -> str:
    """Return where the admin service is."""
    return _checked(admin or _local("admin") or ADMIN_DEFAULT, "--admin")


def use_secret(context: typer.Context, secret_file: Path | None) -> None:
    """Remember the option that stands behind `cluster`."""
    context.find_root().obj = replace(_target(context), secret_file=secret_file)


def admin_client(context: typer.Context, admin: str | None, *, timeout_s: float = 10.0) -> AdminClient:
    """Return a client of the admin service, with the secret that changes need."""
    local = None if admin else state.secret_file(_local_directory())
    secret_file = _target(context).secret_file or local
    return AdminClient(admin_addresses(admin), timeout=timeout_s, secret_file=secret_file)


def output_of(context: typer.Context, output: Output | None) -> Output:
    """Return how to print."""
    return output or _target(context).output or Output.TABLE


def _target(context: typer.Context) -> Target:
    target = context.find_root().obj
    return target if isinstance(target, Target) else Target()


def _checked(addresses: str, option: str) -> str:
    try:
        parse_addresses(addresses)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint=option) from None
    return addresses


def _local_directory() -> Path:
    return Path(os.environ.get("WALRUS_DEV_DIR") or state.DEFAULT_DIRECTORY)


def _local(port: str) -> str:
    """Return where the local cluster listens; "" if there is none."""
    directory = _local_directory()
    addresses = state.addresses(directory, port)
    if not addresses and state.exists(directory):
        raise errors.Unavailable(
            f"the cluster in {directory} does not run: start it with `walrus dev up`,"
            " or say with --addr (text), --bootstrap (gRPC) or --admin where another one is"
        )
    return ",".join(addresses)


def log_client(context: typer.Context, bootstrap: str | None) -> Client:
    """Return a client of the Log service for a command that a person waits for."""
    return Client(grpc_addresses(context, bootstrap), retry_timeout_ms=RETRY_TIMEOUT_MS)
