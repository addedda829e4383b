"""The commands below `walrus k8s`. Loaded with every `walrus`, so what is slow is imported when a command runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from walrus_client.cli.exit_codes import Failed, exit_code_of
from walrus_client.cli.output import Output, OutputOption, as_dict, print_json, print_line, print_note, print_table
from walrus_client.cli.target import output_of

if TYPE_CHECKING:
    from walrus_operator.cli.difference import Seen
    from walrus_operator.cli.orders import Order
    from walrus_operator.cli.user import UserApi
    from walrus_operator.objects import Kind, Manifest

T = TypeVar("T")

_HOUR_S = 3600.0

app = typer.Typer(
    help="Look at clusters and topics on Kubernetes and give orders to brokers, with your own rights. Also"
    " `kubectl walrus`.",
    no_args_is_help=True,
)

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Where to look. [default: that of the context]", show_default=False),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig. [default: the current]", show_default=False)
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Show how far it is, and end once it is done, refused or taken back.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Seconds that --wait waits; the order stands after that.")
]
ClusterArgument = Annotated[str, typer.Argument(help="Name of the WalrusCluster.", show_default=False)]
MaybeCluster = Annotated[str | None, typer.Argument(help="Name of a WalrusCluster. [default: all]", show_default=False)]


@app.command()
def status(
    context: typer.Context,
    name: MaybeCluster = None,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Show the clusters of a namespace, or one with its brokers and conditions.

    Example: walrus k8s status orders
    """
    from walrus_operator.cli import told
    from walrus_operator.objects import CLUSTER

    found = _listed(CLUSTER, name, namespace, kube_context)
    if output_of(context, output) is Output.JSON:
        print_json([{"metadata": {"name": one["metadata"]["name"]}, "status": one.get("status")} for one in found])
        return
    print_table(told.CLUSTERS, map(told.cluster_row, found))
    if name is not None:
        print_table(told.BROKERS, told.broker_rows(found[0]))
        print_table(told.CONDITIONS, told.condition_rows(found[0]))


@app.command()
def explain(name: ClusterArgument, namespace: NamespaceOption = None, kube_context: ContextOption = None) -> None:
    """Tell what comes next for a cluster, what holds it up, and who can lift that.

    Example: walrus k8s explain orders
    """
    from walrus_operator.cli import told
    from walrus_operator.objects import CLUSTER

    for line in told.explained(_listed(CLUSTER, name, namespace, kube_context)[0]):
        print_line(line)


@app.command()
def topics(
    context: typer.Context,
    name: MaybeCluster = None,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Show the WalrusTopics of a namespace, or of one cluster, and why those are not ready that are not.

    Example: walrus k8s topics orders
    """
    from walrus_operator.cli import told
    from walrus_operator.objects import TOPIC

    found = _listed(TOPIC, None, namespace, kube_context)
    found = [one for one in found if name in (None, one["spec"].get("cluster"))]
    if output_of(context, output) is Output.JSON:
        print_json([{"metadata": {"name": one["metadata"]["name"]}, "status": one.get("status")} for one in found])
    else:
        print_table(told.TOPICS, map(told.topic_row, found))


@app.command()
def diff(
    file: Annotated[Path, typer.Option("--file", "-f", help="Manifests, of which WalrusClusters are looked at.")],
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Tell what the operator would do with the clusters of a file, by its own planner. Nothing is written.

    Brokers are asked by port-forward; of those that cannot be asked, the status tells.

    Example: walrus k8s diff -f walruscluster.yaml
    """
    import yaml

    from walrus_operator.cli import difference
    from walrus_operator.objects import CLUSTER

    try:
        manifests = [one for one in yaml.safe_load_all(file.read_text()) if isinstance(one, dict)]
    except yaml.YAMLError as error:
        raise Failed(f"{file} is no YAML: {error}") from error
    wanted = [one for one in manifests if one.get("kind") == CLUSTER.name and _is_whole(one)]
    if not wanted:
        raise Failed(f"{file} has no {CLUSTER.name} with a name and a spec")

    async def look(kube: UserApi, here: str) -> list[Seen]:
        return [
            await difference.look(kube, namespace or one["metadata"].get("namespace") or here, one) for one in wanted
        ]

    for seen, one in zip(_asked(look, kube_context), wanted, strict=True):
        for line in difference.difference(seen, one["spec"]):
            print_line(line)


@app.command()
def report(
    name: ClusterArgument,
    to: Annotated[
        Path | None, typer.Option(help="File to write. [default: named by cluster and time]", show_default=False)
    ] = None,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Bundle the objects of a cluster and the logs of its pods into a .tar.gz, secrets left out.

    Example: walrus k8s report orders
    """
    from walrus_operator.cli import report as reports
    from walrus_operator.objects import CLUSTER

    _listed(CLUSTER, name, namespace, kube_context)
    path = to or Path(f"walrus-report-{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    files = _asked(lambda kube, here: reports.gather(kube, namespace or here, name), kube_context)
    reports.write(files, path)
    print_line(str(path))
    if "not-read.txt" in files:
        print_note("Some of it may not be read with these rights: not-read.txt in the bundle says what.")


@app.command()
def roll(
    name: ClusterArgument,
    wait: WaitOption = False,
    timeout: TimeoutOption = _HOUR_S,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Restart all brokers of a cluster, one after the other, under the gates of every roll.

    Example: walrus k8s roll orders --wait
    """
    from walrus_operator.cli.orders import Roll
    from walrus_operator.objects import CLUSTER

    found = _listed(CLUSTER, name, namespace, kube_context)[0]
    _order(found, Roll(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"), kube_context, timeout if wait else None)


@app.command()
def drain(
    name: ClusterArgument,
    broker: Annotated[str, typer.Argument(help="Pod or disk of the broker.", show_default=False)],
    wait: WaitOption = False,
    timeout: TimeoutOption = _HOUR_S,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Let a broker hand over all that it leads and stores, and stay: before its machine is serviced for long.

    Example: walrus k8s drain orders orders-general-1 --wait
    """
    from walrus_operator.cli.orders import Drain, ordered, taken_back_by
    from walrus_operator.objects import CLUSTER

    found = _listed(CLUSTER, name, namespace, kube_context)[0]
    order = Drain.of(found, broker)
    former = ordered(found, order.annotation)
    if former not in ("", order.value):
        raise Failed(f"disk {former} is drained, and one at a time is. First: {taken_back_by(order, found)}")
    _order(found, order, kube_context, timeout if wait else None)


@app.command()
def replace(
    name: ClusterArgument,
    disk: Annotated[str, typer.Argument(help="The disk that will never come back.", show_default=False)],
    wait: WaitOption = False,
    timeout: TimeoutOption = _HOUR_S,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Give up a disk that will never come back, with what it stored; its broker comes up on another one.

    Example: walrus k8s replace orders 5f6a0a7e-7d0b-4c8e-9d6e-2c1f3b9a4e11
    """
    from walrus_operator.cli.orders import Replace
    from walrus_operator.objects import CLUSTER

    found = _listed(CLUSTER, name, namespace, kube_context)[0]
    order = Replace.of(found, disk)
    if not yes:
        typer.confirm(
            f"{order}. The disk is refused if it shows up again, and its claim is deleted. Go on?", abort=True
        )
    _order(found, order, kube_context, timeout if wait else None)


@app.command()
def doctor(
    context: typer.Context,
    name: ClusterArgument,
    operator_namespace: Annotated[
        str | None,
        typer.Option(
            help="Where the operator runs. [default: as the cluster's NetworkPolicy says]", show_default=False
        ),
    ] = None,
    namespace: NamespaceOption = None,
    kube_context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Look at a cluster, its brokers and its operator as one would by hand. Exit code 1 where anything is wrong.

    Example: walrus k8s doctor orders
    """
    from walrus_operator.cli import doctor as doctors
    from walrus_operator.cli.examining import Verdict, examined
    from walrus_operator.objects import CLUSTER

    found = _listed(CLUSTER, name, namespace, kube_context)[0]
    findings = examined(_asked(lambda kube, _: doctors.look(kube, found, operator_namespace), kube_context))
    if output_of(context, output) is Output.JSON:
        print_json([as_dict(one) for one in findings])
    else:
        rows = ((one.check, one.verdict, one.found, one.way_out or None) for one in findings)
        print_table(("check", "verdict", "found", "way out"), rows)
    failed = sum(one.verdict is Verdict.FAILED for one in findings)
    if failed:
        raise Failed(f"{failed} of {len(findings)} findings are failures")


def _order(found: Manifest, order: Order, kube_context: str | None, timeout_s: float | None) -> None:
    """Write the order, say what was ordered, and follow it where a time says how long."""
    from walrus_operator.cli import following, orders
    from walrus_operator.kube.api import Conflict, Denied, Missing, Refused, Unreachable
    from walrus_operator.objects import ref_of

    ref = ref_of(found)

    async def give(kube: UserApi, _: str) -> str | None:
        try:
            await kube.annotate(found, {order.annotation: order.value})
        except Denied as error:
            raise Failed(
                f"nothing is ordered: {error}. Whoever may patch walrusclusters in namespace {ref.namespace} can do"
                " it, as the ClusterRole `edit` may"
            ) from error
        except (Missing, Conflict, Refused) as error:
            raise Failed(f"nothing is ordered, as {ref} is gone or another one since: {error}") from error
        except Unreachable as error:
            raise Failed(f"nobody knows whether it is ordered: {error}. Ask again") from error
        for line in orders.given(order, found):
            print_line(line)
        return None if timeout_s is None else await following.follow(kube, order, found, timeout_s, print_note)

    done = _asked(give, kube_context)
    if done is not None:
        print_line(f"Done: {done}.")


def _is_whole(manifest: Manifest) -> bool:
    metadata = manifest.get("metadata")
    return (
        isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and isinstance(manifest.get("spec"), dict)
    )


def _listed(kind: Kind, name: str | None, namespace: str | None, kube_context: str | None) -> list[Manifest]:
    """The resources of a namespace, or the one of that name."""
    from walrus_operator.cli.told import ended

    found = _asked(lambda kube, here: kube.list(kind, namespace or here), kube_context)
    wanted = [one for one in found if name in (None, one["metadata"]["name"])]
    if name is not None and not wanted:
        raise Failed(ended([one["metadata"]["name"] for one in found], kind.name))
    return wanted


def _asked(ask: Callable[[UserApi, str], Awaitable[T]], kube_context: str | None) -> T:
    """What Kubernetes answers to whom the kubeconfig names; the namespace of the context is given to *ask*."""
    from walrus_operator.cli.user import UserApi
    from walrus_operator.kube.api import KubeError
    from walrus_operator.kube.official import of_user

    async def asked() -> T:
        configuration, here = of_user(kube_context)
        kube = UserApi(configuration=configuration)
        try:
            return await ask(kube, here)
        finally:
            await kube.close()

    try:
        return asyncio.run(asked())
    except KubeError as error:
        raise Failed(str(error)) from error


def kubectl() -> None:
    """The program `kubectl-walrus`, which kubectl finds by its name; always ends with SystemExit."""
    try:
        app(prog_name="kubectl walrus")
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        print_note(f"kubectl walrus: {error}")
        raise SystemExit(int(code)) from None
