"""The client of the admin service."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from walrus_client import errors
from walrus_client.admin.model import (
    Config,
    Drain,
    Identity,
    LostTopics,
    NodeView,
    Organisation,
    OrganisationLimits,
    Replication,
    SegmentView,
    Status,
    StopImpact,
)
from walrus_client.admin.token import SecretFile, token_of
from walrus_client.admin.topics import ComparedTopic, WantedTopic
from walrus_client.transport import Metadata, Method, Request, Response, Transport, parse_addresses
from walrus_client.v1 import admin_pb2

_SERVICE = "walrus.v1.Admin"
_IDENTITY = Method("Identity", admin_pb2.IdentityRequest, admin_pb2.IdentityResponse, _SERVICE)
_STATUS = Method("Status", admin_pb2.StatusRequest, admin_pb2.StatusResponse, _SERVICE)
_GET_CONFIG = Method("GetConfig", admin_pb2.GetConfigRequest, admin_pb2.GetConfigResponse, _SERVICE)
_SET_CONFIG = Method("SetConfig", admin_pb2.SetConfigRequest, admin_pb2.SetConfigResponse, _SERVICE)
_SET_REPLICATION = Method("SetReplication", admin_pb2.SetReplicationRequest, admin_pb2.SetReplicationResponse, _SERVICE)
_LIST_ORGANISATIONS = Method(
    "ListOrganisations", admin_pb2.ListOrganisationsRequest, admin_pb2.ListOrganisationsResponse, _SERVICE
)
_SET_ORGANISATION = Method(
    "SetOrganisation", admin_pb2.SetOrganisationRequest, admin_pb2.SetOrganisationResponse, _SERVICE
)
_REMOVE_ORGANISATION = Method(
    "RemoveOrganisation", admin_pb2.RemoveOrganisationRequest, admin_pb2.RemoveOrganisationResponse, _SERVICE
)
_COMPARE_TOPICS = Method("CompareTopics", admin_pb2.CompareTopicsRequest, admin_pb2.CompareTopicsResponse, _SERVICE)
_MAKE_TOPIC = Method("MakeTopic", admin_pb2.MakeTopicRequest, admin_pb2.MakeTopicResponse, _SERVICE)
_SET_TOPIC_CONFIG = Method(
    "SetTopicConfig", admin_pb2.SetTopicConfigRequest, admin_pb2.SetTopicConfigResponse, _SERVICE
)
_SET_TOPIC_PARTITIONS = Method(
    "SetTopicPartitions", admin_pb2.SetTopicPartitionsRequest, admin_pb2.SetTopicPartitionsResponse, _SERVICE
)
_REMOVE_TOPIC = Method("RemoveTopic", admin_pb2.RemoveTopicRequest, admin_pb2.RemoveTopicResponse, _SERVICE)
_LIST_MEMBERS = Method("ListMembers", admin_pb2.ListMembersRequest, admin_pb2.ListMembersResponse, _SERVICE)
_DESCRIBE_SEGMENTS = Method(
    "DescribeSegments", admin_pb2.DescribeSegmentsRequest, admin_pb2.DescribeSegmentsResponse, _SERVICE
)
_CAN_STOP = Method("CanStop", admin_pb2.CanStopRequest, admin_pb2.CanStopResponse, _SERVICE)
_CAUGHT_UP = Method("CaughtUp", admin_pb2.CaughtUpRequest, admin_pb2.CaughtUpResponse, _SERVICE)
_TRANSFER = Method(
    "TransferLeadership", admin_pb2.TransferLeadershipRequest, admin_pb2.TransferLeadershipResponse, _SERVICE
)
_FINALIZE = Method("FinalizeLevel", admin_pb2.FinalizeLevelRequest, admin_pb2.FinalizeLevelResponse, _SERVICE)
_START_DRAIN = Method("StartDrain", admin_pb2.DrainRequest, admin_pb2.DrainStatus, _SERVICE)
_CANCEL_DRAIN = Method("CancelDrain", admin_pb2.DrainRequest, admin_pb2.DrainStatus, _SERVICE)
_GET_DRAIN = Method("GetDrain", admin_pb2.DrainRequest, admin_pb2.DrainStatus, _SERVICE)
_REMOVE_MEMBER = Method("RemoveMember", admin_pb2.RemoveMemberRequest, admin_pb2.RemoveMemberResponse, _SERVICE)
_LIST_LOST_TOPICS = Method(
    "ListLostTopics", admin_pb2.ListLostTopicsRequest, admin_pb2.ListLostTopicsResponse, _SERVICE
)
_RECOVER_TOPIC = Method("RecoverTopic", admin_pb2.RecoverTopicRequest, admin_pb2.RecoverTopicResponse, _SERVICE)
_RECOVER_METADATA = Method(
    "RecoverMetadata", admin_pb2.RecoverMetadataRequest, admin_pb2.RecoverMetadataResponse, _SERVICE
)
_SET_LOG_LEVEL = Method("SetLogLevel", admin_pb2.SetLogLevelRequest, admin_pb2.SetLogLevelResponse, _SERVICE)


class AdminClient:
    """A connection to the admin service at *address* (`host:admin_port`), or at the first of several that answers.

    Each call ends within *timeout* seconds for each address; nothing is tried again. Raises RetryableError where it
    was not done or may safely be asked again, RejectedError where the same request will not be taken later either, and
    OutcomeUnknown where a change may have been made: asking for the same again is safe. Safe to use from many threads.

        with AdminClient("127.0.0.1:9091") as admin:
            admin.set_config({"segments.max_entries": 1_000_000})
            print(admin.status().metadata.leader)
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        secret_file: Path | str | None = None,
        secrets: bytes | None = None,
    ) -> None:
        """*secret_file*: the nodes' `--secret-file`, read anew when it changes; else the one that
        WALRUS_SECRET_FILE names. *secrets*: what is in that file, where the caller has no file; it goes first.
        Where nodes share a secret, such a call raises Unauthenticated without it.
        """
        # Its calls have short limits of their own, and gRPC's Python server takes many pings for an attack.
        self._transport = Transport(parse_addresses(address), watchful=False)
        self._timeout = timeout
        named = secret_file or os.environ.get("WALRUS_SECRET_FILE")
        self._secret_file = SecretFile(Path(named)) if named else None
        self._secrets = secrets

    def identity(self) -> Identity:
        """Who the node is; it also answers while it waits to be admitted."""
        return Identity.parse(self._call(_IDENTITY, admin_pb2.IdentityRequest()))

    def status(self) -> Status:
        """How the node is, and how it sees the cluster."""
        return Status.parse(self._call(_STATUS, admin_pb2.StatusRequest()))

    def config(self) -> Config:
        """The cluster-wide settings, as the node knows them."""
        return Config.parse(self._call(_GET_CONFIG, admin_pb2.GetConfigRequest()))

    def set_config(
        self, entries: Mapping[str, int], *, unset: Iterable[str] = (), expect_version: int | None = None
    ) -> int:
        """Sets some settings and takes others back to each node's own option, all or none; gives their version.

        What holds already keeps its version. Every node follows them at once, after a restart, and when it joins. With
        *expect_version* raises VersionMismatch where another one is there. Raises InvalidConfig with the wrong key.
        """
        request = admin_pb2.SetConfigRequest(unset=unset, expect_version=expect_version)
        for key, value in entries.items():
            try:
                request.entries[key] = value
            except (TypeError, ValueError):  # protobuf's own words do not say which
                raise errors.InvalidConfig(
                    f"config {key}: it must be a whole number from 0 on, not {value!r}", key=key
                ) from None
        return self._change(_SET_CONFIG, request).version

    def set_replication(self, replication: Replication) -> None:
        """Changes how segments that are opened from now on are replicated; again changes nothing.

        Open ones stay as they are until they roll; copies of sealed ones are made or given up. Raises RejectedError
        where it is not 1 <= write_quorum <= factor <= 9.
        """
        wanted = admin_pb2.ReplicationStatus(factor=replication.factor, write_quorum=replication.write_quorum)
        self._change(_SET_REPLICATION, admin_pb2.SetReplicationRequest(replication=wanted))

    def organisations(self) -> tuple[Organisation, ...]:
        """The organisations by name, as the node knows them."""
        answer = self._call(_LIST_ORGANISATIONS, admin_pb2.ListOrganisationsRequest())
        return tuple(map(Organisation.parse, answer.organisations))

    def set_organisation(
        self, name: str, limits: OrganisationLimits | None = None, *, expect_version: int | None = None
    ) -> None:
        """Makes an organisation, or gives one other limits; without *limits* it has none of its own.

        With *expect_version* raises VersionMismatch where another one is there; 0: where there is one of that name.
        """
        wanted = admin_pb2.OrganisationLimits(**asdict(limits or OrganisationLimits()))
        request = admin_pb2.SetOrganisationRequest(name=name, limits=wanted, expect_version=expect_version)
        self._change(_SET_ORGANISATION, request)

    def remove_organisation(self, name: str) -> None:
        """Takes an organisation out; one that is not there is fine. Raises RejectedError where it has topics."""
        self._change(_REMOVE_ORGANISATION, admin_pb2.RemoveOrganisationRequest(name=name))

    def compare_topics(self, wanted: Sequence[WantedTopic]) -> tuple[ComparedTopic, ...]:
        """What there is of topics of any organisation, in the order of *wanted*: at most 1,000 at once.

        The answer is as new as all that was committed before the call. Raises Unavailable where nobody can say that.
        """
        topics = [admin_pb2.WantedTopic(org=one.org, name=one.name, config=one.config) for one in wanted]
        answer = self._call(_COMPARE_TOPICS, admin_pb2.CompareTopicsRequest(topics=topics))
        return tuple(map(ComparedTopic.parse, answer.topics))

    def make_topic(
        self, org: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> tuple[str, bool]:
        """Makes a topic of an organisation; gives its uuid, and whether it was made.

        One that has the name is left as it is, and named. Raises RejectedError where there is no such organisation or
        setting, or the organisation may have no more.
        """
        request = admin_pb2.MakeTopicRequest(org=org, name=name, partitions=partitions, config=config or {})
        answer = self._change(_MAKE_TOPIC, request)
        return answer.topic, answer.created

    def set_topic_config(
        self, topic: str, entries: Mapping[str, str], *, unset: Iterable[str] = (), expect_version: int | None = None
    ) -> None:
        """Changes the settings that a topic (its uuid) has itself, all or none.

        With *expect_version* raises VersionMismatch where another one is there. Raises UnknownTopic, and RejectedError
        for a setting that there is not.
        """
        request = admin_pb2.SetTopicConfigRequest(topic=topic, set=entries, unset=unset, expect_version=expect_version)
        self._change(_SET_TOPIC_CONFIG, request)

    def set_topic_partitions(self, topic: str, partitions: int) -> None:
        """Gives a topic (its uuid) so many partitions. Raises UnknownTopic, RejectedError where it has more."""
        self._change(_SET_TOPIC_PARTITIONS, admin_pb2.SetTopicPartitionsRequest(topic=topic, partitions=partitions))

    def remove_topic(self, topic: str) -> None:
        """Deletes a topic (its uuid) with all its records. Raises UnknownTopic where there is none any more."""
        self._change(_REMOVE_TOPIC, admin_pb2.RemoveTopicRequest(topic=topic))

    def members(self) -> tuple[NodeView, ...]:
        """The nodes of the cluster by id, as the node knows them."""
        answer = self._call(_LIST_MEMBERS, admin_pb2.ListMembersRequest())
        return tuple(map(NodeView.parse, answer.nodes))

    def segments(self, topic: str = "", *, under_replicated: bool = False, limit: int = 0) -> tuple[SegmentView, ...]:
        """The segments as the node knows them, in order of topics, partitions and numbers; 1,000 without *limit*.

        Of one *topic* (`organisation/name`) if it is given, or only those that lack copies.
        """
        request = admin_pb2.DescribeSegmentsRequest(topic=topic, under_replicated=under_replicated, limit=limit)
        return tuple(map(SegmentView.parse, self._call(_DESCRIBE_SEGMENTS, request).segments))

    def can_stop(self, disk: str) -> StopImpact:
        """What the cluster would lack if the node of this disk stopped now. Raises UnknownNode."""
        return StopImpact.parse(self._call(_CAN_STOP, admin_pb2.CanStopRequest(disk=disk)))

    def caught_up(self) -> tuple[str, ...]:
        """What the node still misses: metadata committed before the call, copies, or to serve; empty: nothing."""
        return tuple(self._call(_CAUGHT_UP, admin_pb2.CaughtUpRequest()).missing)

    def transfer_leadership(self, to: str = "") -> int:
        """Lets another voter lead the metadata, *to* (a disk) if it is given; gives the new leader's node id.

        Raises UnknownNode, RejectedError where nobody else votes, Unavailable where nobody took over in time.
        """
        return self._change(_TRANSFER, admin_pb2.TransferLeadershipRequest(to=to)).leader

    def finalize_level(self, level: int = 0) -> int:
        """Lets the cluster use commands up to *level*, or up to what all members know; gives the level in use then.

        A node that knows less does not start any more. Raises RejectedError where a member does not know the level.
        """
        return self._change(_FINALIZE, admin_pb2.FinalizeLevelRequest(level=level)).level

    def start_drain(self, disk: str) -> Drain:
        """Gives the node no new segments and moves those that it has; again changes nothing. Raises UnknownNode."""
        return Drain.parse(self._change(_START_DRAIN, admin_pb2.DrainRequest(disk=disk)))

    def cancel_drain(self, disk: str) -> Drain:
        """Lets the node take segments again. Raises UnknownNode."""
        return Drain.parse(self._change(_CANCEL_DRAIN, admin_pb2.DrainRequest(disk=disk)))

    def drain(self, disk: str) -> Drain:
        """How far a drain is. Raises UnknownNode."""
        return Drain.parse(self._call(_GET_DRAIN, admin_pb2.DrainRequest(disk=disk)))

    def remove_member(self, disk: str, *, lost: bool = False, replaced_by: str = "") -> None:
        """Takes a disk out of the cluster for good; one that is out already is fine.

        It must store nothing any more, or be *lost*. *replaced_by* is the disk of a member that came in its place.
        Raises UnknownNode, RejectedError where it would take copies or the metadata's majority away.
        """
        request = admin_pb2.RemoveMemberRequest(disk=disk, lost=lost, replaced_by=replaced_by)
        self._change(_REMOVE_MEMBER, request)

    def lost_topics(self) -> LostTopics:
        """Topics that no metadata name, as the disks of all members have them."""
        return LostTopics.parse(self._call(_LIST_LOST_TOPICS, admin_pb2.ListLostTopicsRequest()))

    def recover_topic(self, topic: str, *, name: str = "") -> str:
        """Names a lost topic (its uuid) again, under *name* if it is given; gives its name. Its records are there.

        Raises Unavailable while a member does not answer, UnknownTopic, TopicExists where the name is taken, and
        InvalidRequest where no name is known, or nobody can say which of its segments is the first.
        """
        return self._change(_RECOVER_TOPIC, admin_pb2.RecoverTopicRequest(topic=topic, name=name)).name

    def recover_metadata(self, gone: Sequence[str]) -> tuple[str, list[str]]:
        """Goes on without a majority of the metadata's voters, from what this very node has.

        *gone*: disks that will never come back. Gives the id of the cluster that goes on, and disks that were not
        reached and are to follow. The nodes start again. Raises RejectedError while a majority is there, where a
        member is neither there nor gone, and where another one knows more.
        """
        answer = self._change(_RECOVER_METADATA, admin_pb2.RecoverMetadataRequest(gone=gone))
        return answer.cluster_id, list(answer.left_behind)

    def follow(self, cluster_id: str, seed: str) -> None:
        """Has this very node, which was not reached, enter the cluster that went on; *seed*: a Raft address there."""
        self._change(_RECOVER_METADATA, admin_pb2.RecoverMetadataRequest(follow=cluster_id, seeds=[seed]))

    def set_log_level(self, level: str) -> None:
        """Changes what the node logs, until it is restarted: a level, or a filter as "info,walrus_broker=debug"."""
        self._change(_SET_LOG_LEVEL, admin_pb2.SetLogLevelRequest(level=level))

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transport.origin.is_here():  # a child that leaves the block of its parent has nothing to close
            self.close()

    def _change(self, method: Method[Request, Response], request: Request) -> Response:
        """Call with the token of the secret, if there is one."""
        if self._secrets is not None:
            token = token_of(self._secrets, "what was given as secrets")
        elif self._secret_file is not None:
            token = self._secret_file.token()
        else:
            return self._call(method, request)
        return self._call(method, request, (("authorization", f"Bearer {token}"),))

    def _call(self, method: Method[Request, Response], request: Request, metadata: Metadata = ()) -> Response:
        for _ in range(self._transport.node_count() - 1):
            try:
                return self._transport.call(method, request, timeout_s=self._timeout, metadata=metadata)
            except errors.RetryableError:  # the transport has gone on to the next address
                continue
        return self._transport.call(method, request, timeout_s=self._timeout, metadata=metadata)
