"""How a refusal travels: a gRPC status, and the reason with its facts in a trailer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from walrus_client.v1 import log_pb2

from walrus_node.metadata.store import Rejected

_TRAILER = "walrus-error-bin"  # a walrus.v1.Error

_CODES = {
    "InvalidConfig": grpc.StatusCode.INVALID_ARGUMENT,
    "InvalidOrganisationName": grpc.StatusCode.INVALID_ARGUMENT,
    "InvalidRequest": grpc.StatusCode.INVALID_ARGUMENT,
    "InvalidTopicConfig": grpc.StatusCode.INVALID_ARGUMENT,
    "InvalidTopicName": grpc.StatusCode.INVALID_ARGUMENT,
    "OutOfRange": grpc.StatusCode.INVALID_ARGUMENT,
    "VersionMismatch": grpc.StatusCode.ABORTED,
    "DiskGone": grpc.StatusCode.NOT_FOUND,
    "UnknownTopic": grpc.StatusCode.NOT_FOUND,
    "UnknownNode": grpc.StatusCode.NOT_FOUND,
    "Unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "NotAdmitted": grpc.StatusCode.UNAVAILABLE,
}


async def refuse(
    context: grpc.aio.ServicerContext[Any, Any],
    reason: str,
    message: str,
    *,
    retryable: bool = False,
    facts: Mapping[str, object] | None = None,
) -> NoReturn:
    """End the call."""
    told = log_pb2.Error(
        reason=reason,
        message=message,
        retryable=retryable,
        facts={name: str(fact) for name, fact in (facts or {}).items()},
    )
    code = _CODES.get(reason, grpc.StatusCode.UNAVAILABLE if retryable else grpc.StatusCode.FAILED_PRECONDITION)
    await context.abort(code, message, ((_TRAILER, told.SerializeToString()),))
    raise AssertionError("abort does not return")


async def refuse_as(context: grpc.aio.ServicerContext[Any, Any], rejected: Rejected) -> NoReturn:
    """End the call with the metadata's refusal."""
    await refuse(context, rejected.reason, rejected.message, facts=rejected.facts)
