"""Settings as arguments of commands: `KEY=VALUE`, or `KEY=` for one that is taken back."""

import typer


def parse_settings(settings: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return what to set, and what to take back."""
    config, unset = {}, []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        if value:
            config[key] = value
        else:
            unset.append(key)
    return config, unset
