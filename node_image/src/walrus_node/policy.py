"""The rollover policy that holds on this node: the cluster's settings above its own options. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from walrus_node.config import Config


def rollover_policy(config: Config, settings: Mapping[str, int]) -> dict[str, int]:
    """What the data plane is configured with; settings that are none of its own are left out."""
    own = {
        "segments.max_entries": ("segment_entries_max", config.segment_entries_max),
        "segments.max_bytes": ("segment_bytes_max", config.segment_bytes_max),
        "segments.max_age_ms": ("segment_age_ms_max", config.segment_age_ms_max),
        "segments.min_age_ms": ("segment_age_ms_min", config.segment_age_ms_min),
        "segments.check_interval_ms": ("monitor_check_ms", config.monitor_check_ms),
    }
    return {option: settings.get(key, value) for key, (option, value) in own.items()}
