"""`walrus cluster orgs`: the namespaces of topics and what each of them may have."""

from typing import Annotated

import typer

from walrus_client.admin import OrganisationLimits
from walrus_client.cli.output import Output, OutputOption, as_dict, print_json, print_line, print_table
from walrus_client.cli.target import AdminOption, admin_client, output_of

app = typer.Typer(help="See and change organisations: namespaces of topics.", no_args_is_help=True)


@app.command("list")
def list_organisations(context: typer.Context, admin: AdminOption = None, output: OutputOption = None) -> None:
    """List the organisations with what they have and may have.

    Example: walrus cluster orgs list
    """
    with admin_client(context, admin) as client:
        found = client.organisations()
    if output_of(context, output) is Output.JSON:
        print_json([as_dict(organisation) for organisation in found])
        return
    print_table(
        ("organisation", "topics", "limit", "partitions", "limit", "creations per second"),
        [
            (
                organisation.name,
                organisation.topics,
                organisation.limits.topics_max,
                organisation.partitions,
                organisation.limits.partitions_max,
                organisation.limits.creations_per_second_max,
            )
            for organisation in found
        ],
    )


OrganisationArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)]


@app.command("set")
def set_organisation(
    context: typer.Context,
    name: OrganisationArgument,
    topics_max: Annotated[int | None, typer.Option(min=0, help="How many topics.", show_default=False)] = None,
    partitions_max: Annotated[
        int | None, typer.Option(min=0, help="How many partitions, of all its topics.", show_default=False)
    ] = None,
    creations_per_second_max: Annotated[
        int | None, typer.Option(min=0, help="How many topics may be created in a second.", show_default=False)
    ] = None,
    admin: AdminOption = None,
) -> None:
    """Make an organisation, or give one other limits; a limit that is not given is lifted.

    Its clients connect to listeners of its own: `walrus-node --grpc-listener NAME=0.0.0.0:9190,org=NAME`.

    Example: walrus cluster orgs set acme --topics-max 100
    """
    limits = OrganisationLimits(topics_max, partitions_max, creations_per_second_max)
    with admin_client(context, admin) as client:
        client.set_organisation(name, limits)
    print_line(f"organisation {name} is set")


@app.command("remove")
def remove_organisation(context: typer.Context, name: OrganisationArgument, admin: AdminOption = None) -> None:
    """Take an organisation out that has no topics.

    Example: walrus cluster orgs remove acme
    """
    with admin_client(context, admin) as client:
        client.remove_organisation(name)
    print_line(f"there is no organisation {name} any more")
