//! Every wait of a broker, in one place: how long it waits for whom, when it tries again, and how often it looks.
//!
//! Waits depend on each other: whoever asks waits longer than the one who is asked waits for something else, or else it
//! gives up just before its answer comes. The assertions at the end hold those dependencies. What users set (timeouts of
//! listeners, the lease, how long an append waits) is in [`Config`](super::config::Config).

use std::time::Duration;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// The metadata

/// One answer of the metadata store to this broker's own work: a roll, a recovery, a repair.
pub(crate) const METADATA_ANSWER: Duration = s(5);
/// One answer of the metadata store while a client waits for it, as for a new topic.
pub(crate) const METADATA_ANSWER_TO_CLIENT: Duration = s(10);
/// The metadata's answer about a successor while appends wait for it: their segment may mostly go on without one.
pub(crate) const METADATA_ALLOTS: Duration = s(1);
/// The metadata store takes note that this node's disk is full, or has room again.
pub(crate) const METADATA_NOTES_ROOM: Duration = s(2);
/// One barrier. Whoever comes while one is under way waits for the next, so for two at most.
pub(crate) const BARRIER: Duration = s(2);
/// Pause before a client's topic is proposed again, when the cluster has created as many as it may in this second.
pub(crate) const CREATION_RETRY: Duration = ms(100);
/// Pause between two tries of a step of a roll or of a recovery: clients wait behind it.
pub(crate) const STEP_RETRY: Duration = ms(50);
/// Pause between two looks while this node's metadata lag behind what it has heard from another node.
pub(crate) const NEWS_LOOK: Duration = ms(50);
/// A request of a client that names a leader's epoch waits so long for the metadata that name it, too.
pub(crate) const EPOCH_NEWS: Duration = s(1);
/// A producer that was told of another leader is told so for as long still when the leader is this node again: what it had sent
/// before it read the answer has arrived by then.
pub(crate) const TOLD_LINGERS: Duration = ms(500);
/// A message of a peer waits so long for the metadata that the peer acted on.
pub(crate) const MESSAGE_NEWS: Duration = s(1);
/// The frames of one connection wait so long for the metadata that their sender knew.
pub(crate) const FRAME_NEWS: Duration = s(5);
/// Pause between two updates of the leases from the metadata, should a publication have been missed.
pub(crate) const LEASES_LOOK: Duration = ms(100);

// Other nodes

/// Connecting to a peer, and the greeting.
pub(crate) const HANDSHAKE: Duration = s(3);
/// A peer whose greeting was refused has so long to close the connection.
pub(crate) const REFUSED_PEER_CLOSES: Duration = s(5);
/// First pause after a connection could not be made; each further one is twice as long.
pub(crate) const CONNECT_RETRY_MIN: Duration = ms(25);
/// Longest pause after a connection could not be made.
pub(crate) const CONNECT_RETRY_MAX: Duration = s(1);
/// Pause between two looks at the deadlines of calls, while there are calls.
pub(crate) const CALL_DEADLINES_LOOK: Duration = ms(250);
/// Pause between two pings of a node.
pub(crate) const PING_PAUSE: Duration = ms(200);
/// A ping that is unanswered for so long is a failure, where answers come at once. More time is given where they do not,
/// as on a busy machine.
pub(crate) const PING_ANSWER_MIN: Duration = ms(1_000);
/// A ping that is unanswered for so long is a failure, however busy the machine is.
pub(crate) const PING_ANSWER_MAX: Duration = ms(2_500);
/// Calls to a node that is silent are given up when it has been so for this long.
pub(crate) const CALLS_TO_SILENT_NODE: Duration = s(2);

// Copies

/// A look at another node's copies of segments.
pub(crate) const SEGMENT_INFO: Duration = s(2);
/// A question about segments waits so long for the metadata that whoever asks has heard of.
pub(crate) const SEGMENT_INFO_NEWS: Duration = s(1);
/// One page of another node's copy, for this node's own.
pub(crate) const COPY_FETCH: Duration = s(2);
/// A node makes the log of a segment.
pub(crate) const PREPARE: Duration = s(3);
/// The other replicas' word that they still take a leader's appends.
pub(crate) const CONFIRM: Duration = s(1);
/// A question whether a replica still takes appends waits so long for the metadata that its sender has heard of.
pub(crate) const CONFIRM_NEWS: Duration = ms(500);
/// A doubt about a copy's end lasts so long unless somebody tells it again: a reader that waits asks more often.
pub(crate) const DOUBT_LASTS: Duration = s(10);

// Appends

/// A waiter for a quorum spins so long before it sleeps: what a quorum of quick disks takes, and some more.
pub(crate) const QUORUM_SPIN: Duration = Duration::from_micros(500);
/// One answer of a replica to its leader; a replica that takes longer is asked anew.
pub(crate) const REPLICA_ANSWER: Duration = s(10);
/// Pause before a replica that failed is tried again.
pub(crate) const REPLICA_RETRY: Duration = ms(100);
/// The driver of a partition looks again after so long where nothing tells it to look earlier.
pub(crate) const DRIVER_LOOK: Duration = ms(100);
/// Pause between two looks for batches that have waited too long.
pub(crate) const APPEND_EXPIRY_LOOK: Duration = ms(100);
/// Longest wait for an append that a client asks for.
pub(crate) const PRODUCE_MAX: Duration = s(60);
/// The node that forwards a batch gives up so much later than the leader does.
pub(crate) const FORWARD_BEYOND_LEADER: Duration = s(2);
/// The planned end of a segment waits so long for the acknowledgement of what was appended last.
pub(crate) const LAST_APPENDS_ACKED: Duration = s(2);
/// The planned end waits so long for the votes of the replicas; then the leader asks for a recovery.
pub(crate) const ROLL_VOTES: Duration = s(2);
/// A node that has been unable to prepare a successor for so long is passed over.
pub(crate) const PREPARING_NODE_PASSED_OVER: Duration = s(2);
/// A segment that is younger than this is not rolled for want of room for producers: those who wrote within that time are
/// remembered all the same.
pub(crate) const PRODUCER_SILENCE: Duration = s(15 * 60);
/// A segment that got no successor goes on for so long before it asks again; one that takes nothing more waits so long.
pub(crate) const WITHOUT_SUCCESSOR: Duration = s(1);

// Failover

/// One answer of a replica to a recoverer.
pub(crate) const RECOVERY_ANSWER: Duration = s(2);
/// One attempt of a recovery; then the metadata are looked at again.
pub(crate) const RECOVERY_ATTEMPT: Duration = s(5);
/// Replicas that have not answered a recoverer are asked again after so long.
pub(crate) const RECOVERY_ASKS_AGAIN: Duration = ms(250);
/// A recoverer that was outbid stands back for so long, times its place among the replicas.
pub(crate) const OUTBID_STANDS_BACK: Duration = ms(100);
/// The next replica of the set tries a recovery so much later than the one before it.
pub(crate) const RECOVERER_TURN: Duration = ms(700);
/// Pause after a recovery that failed.
pub(crate) const RECOVERY_RETRY: Duration = s(1);
/// An attempt of another node is given so long.
pub(crate) const OTHERS_ATTEMPT: Duration = s(6);
/// A leader whose lease has lapsed, and that has written nothing, is given so long to hear that it leads.
pub(crate) const DEAF_LEADER: Duration = s(2);
/// A leader that cannot lead is given so long to hear what happened to its segment.
pub(crate) const UNABLE_LEADER: Duration = s(1);
/// Pause between two looks at who leads, and at the segments while a leader is suspected.
pub(crate) const SUSPICION_LOOK: Duration = ms(100);
/// Pause between two looks at all segments where nothing tells that a leader is gone: what they hold may have become too old.
pub(crate) const ALL_SEGMENTS_LOOK: Duration = s(2);

// Reads

/// Another node may take so much longer for a read than the read itself waits for records.
pub(crate) const FETCH_BEYOND_WAIT: Duration = s(5);
/// Another node's search by time in its copy of a segment, which may read and open a block of batches.
pub(crate) const TIME_SEARCH: Duration = s(10);
/// A read waits so long for another leader, or for a decision about the end.
pub(crate) const END_DECIDED: Duration = s(5);
/// A read waits so long for this node's disk to have what others have.
pub(crate) const OWN_COPY_READABLE: Duration = s(1);
/// A fetch of several partitions waits so long for the first look at one of them: others may have records.
pub(crate) const FETCH_LOOK: Duration = s(1);
/// Longest wait of a reader at the end of a log; one that waits longer asks again.
pub(crate) const LONG_POLL_MAX: Duration = s(60);

// Shared cursors

/// A holder of entries that gives no sign for so long loses what it holds.
pub(crate) const HOLDER_SILENCE: Duration = s(30);
/// A partition that could not be read is the last to be looked at for so long.
pub(crate) const UNREADABLE_PARTITION_LAST: Duration = s(1);
/// One call to a node that may own what this node takes over.
pub(crate) const HAND_OVER: Duration = s(2);
/// The same call to a node whose lease has lapsed: it is most likely down, and must not hold the others up.
pub(crate) const HAND_OVER_OF_LAPSED: Duration = ms(300);
/// A commit waits so long until it is durable, before its client is told to come again.
pub(crate) const CURSOR_DURABLE: Duration = s(4);
/// The owner of a cursor is looked for so long on behalf of a client that waits.
pub(crate) const CURSOR_OWNER: Duration = s(10);
/// The owner of a cursor is looked for so long on behalf of a client that waits for something else.
pub(crate) const CURSOR_OWNER_ASIDE: Duration = s(2);
/// The owner of a cursor is looked for so long while this node stops.
pub(crate) const CURSOR_OWNER_STOPPING: Duration = ms(500);
/// One call to the owner of a cursor.
pub(crate) const CURSOR_CALL: Duration = s(5);
/// The metadata have so long to name another owner, before the one that they name is asked to open a new segment.
pub(crate) const OWNER_NAMED: Duration = ms(50);
/// Whoever makes topics over Kafka's protocol waits so long until other nodes know them.
pub(crate) const TOPICS_ROUTED: Duration = s(1);
/// Pause between two looks at what is due in consumer groups.
pub(crate) const GROUP_TICK: Duration = ms(50);
/// A process that has not looked at its groups for so long stood still, or was paused.
pub(crate) const GROUP_STANDSTILL: Duration = s(1);
/// A request of a group waits so long for its coordinator to take over, before its client is told to come again.
pub(crate) const GROUP_TAKEN_OVER: Duration = s(5);
/// A request about groups looks so long for their coordinator.
pub(crate) const GROUP_COORDINATOR: Duration = s(10);
/// One call to the coordinator of a group.
pub(crate) const GROUP_CALL: Duration = s(5);
/// Pause between two looks at how far groups are behind.
pub(crate) const GROUP_LAG_LOOK: Duration = s(5);
/// Pause between two looks at groups that nobody uses any more.
pub(crate) const GROUP_EXPIRY_LOOK: Duration = s(60);
/// No group is forgotten so long after its coordinator took over: clients that could not reach the one before come back meanwhile.
pub(crate) const GROUP_EXPIRY_HOLD: Duration = s(3_600);
/// A group that nobody has used for so long is forgotten, as Kafka's brokers do by default.
pub(crate) const GROUP_EXPIRY: Duration = s(7 * 24 * 3_600);
/// Pause before a failed append of an owner is tried again.
pub(crate) const OWNER_RECORD_RETRY: Duration = ms(200);
/// An append of an owner that must not come late is given up after so long, and with it the ownership.
pub(crate) const OWNER_RECORD: Duration = s(10);
/// Pause between two tellings of how far cursors have come: what was read may stay so long.
pub(crate) const READ_MARKS: Duration = s(2);

// Listeners

/// An answer, or a frame of the text protocol, waits so long for memory.
pub(crate) const ANSWER_MEMORY: Duration = s(5);
/// A message that was sent to this node waits so long for memory to be read into; then it is given up.
pub(crate) const MESSAGE_MEMORY: Duration = s(10);
/// Pause after an accept that failed for want of descriptors or memory: trying again at once would only spin.
pub(crate) const ACCEPT_RETRY: Duration = ms(100);
/// The same pause at the front, whose spare connections are to be answered soon.
pub(crate) const FRONT_ACCEPT_RETRY: Duration = ms(20);
/// All of a spare connection: one that says nothing must not keep the next one from its answer.
pub(crate) const SPARE_CONNECTION: Duration = s(1);
/// The front connects to the server behind a socket.
pub(crate) const FRONT_CONNECT: Duration = s(5);
/// A gRPC client that does not answer a ping for so long is gone.
pub(crate) const GRPC_KEEPALIVE: Duration = s(20);
/// A client that is near, and sends its next append as soon as it has its answer, takes at most so long for that.
pub(crate) const APPEND_TURN: Duration = Duration::from_micros(200);
/// Least pause of a client before it tries again, as `RetryInfo` tells it.
pub(crate) const CLIENT_RETRY: Duration = ms(50);
/// A frame or answer has so long, whatever its size.
pub(crate) const TRANSFER: Duration = s(10);
/// The client has so long to close a connection behind the last answer, before this node does.
pub(crate) const FAREWELL: Duration = s(1);
/// The host of a client that closed has so long to acknowledge the last answer.
pub(crate) const LAST_ANSWER_ACKNOWLEDGED: Duration = s(2);

// Upkeep

/// Pause between two looks of the loops that complete, mend and retire copies, where nothing tells them to look earlier.
pub(crate) const UPKEEP_LOOK: Duration = s(1);
/// A copy that could not be completed, or a report that was not taken, is tried again after so long.
pub(crate) const COPY_RETRY: Duration = s(1);
/// Copies that are lost are looked for again after so long.
pub(crate) const LOST_COPIES_LOOK: Duration = s(30);
/// What could not be mended is tried again after so long.
pub(crate) const REPAIR_RETRY: Duration = s(5);
/// A hole that could not be filled is tried again after so long.
pub(crate) const HOLES_RETRY: Duration = ms(500);
/// Nothing of a deleted topic was found on this disk for so long before the metadata are told.
pub(crate) const EMPTIED_FOR: Duration = s(3);
/// A trim that the metadata have forgotten is asked for again, so often at most.
pub(crate) const TRIM_REMINDER: Duration = s(5);
/// Pause between two looks at how far copies lag: one that follows its leader has caught up a moment later.
pub(crate) const LAG_LOOK: Duration = ms(20);
/// Pause between two looks whether a node comes or goes, which happens slowly.
pub(crate) const DEPARTURE_LOOK: Duration = ms(500);
/// Pause between two looks at all segments that are led here where no node comes or goes and nothing else is new.
pub(crate) const ALL_DEPARTURES_LOOK: Duration = s(10);
/// Pause between two looks whether this node leads more than others: there is no hurry, and each move costs commands.
pub(crate) const SPREAD_LOOK: Duration = s(2);
/// Pause before full segments are looked at again that were not rolled since this second had its rolls.
pub(crate) const ROLLS_AGAIN: Duration = s(1);
/// Pause between two looks at what a node that stops still leads: about as long as the rolls take that were begun together.
pub(crate) const HAND_OVER_LOOK: Duration = ms(20);
/// A segment that was to be handed over and is led here after so long is asked for again: its roll may have failed.
pub(crate) const HAND_OVER_RETRY: Duration = WITHOUT_SUCCESSOR;
/// The segments of a node that stops which nobody uses wait so long, from the beginning, for those in use.
pub(crate) const HAND_OVER_OF_IDLE_WAITS: Duration = s(1);
/// A node that stops waits so long for nodes that hold their leases and do not answer, where only they could take what it leads:
/// one that came back a moment ago answers soon. Nodes that all stop at once wait so long for each other at most.
pub(crate) const HAND_OVER_HOPES: Duration = ms(500);
/// Pause between two looks whether somebody may still need logs that are left of disks without votes.
pub(crate) const LEFT_LOGS_LOOK: Duration = s(10);
/// Pause between two looks for a compaction that is due.
pub(crate) const COMPACTION_LOOK: Duration = s(2);
/// A compaction looks so often at what others do on its node.
pub(crate) const COURTESY_LOOK: Duration = ms(50);
/// A compaction that ended early is tried again after so long.
pub(crate) const COMPACTION_RETRY: Duration = s(10);
/// Copies of what a compaction wrote are made and verified within so long; then it is given up.
pub(crate) const CANDIDATE_VERIFIED: Duration = s(300);
/// Pause between two looks at the room on the disk.
pub(crate) const ROOM_LOOK: Duration = ms(500);
/// A disk that has refused something is not believed for so long, whatever it says of itself: quotas and inodes end too.
pub(crate) const FULL_DISK_DOUBTED: Duration = s(3);

// The end of the process

/// Running gRPC calls have so long to end.
pub(crate) const GRPC_STOP: Duration = ms(1_200);
/// Running requests of the text protocol have so long to end.
pub(crate) const TEXT_STOP: Duration = ms(1_000);
/// A node that stops sends the last spans to their collector for so long at most.
pub(crate) const SPANS_SENT: Duration = ms(1_000);
/// Running requests of Kafka's protocol have so long to end.
pub(crate) const KAFKA_STOP: Duration = ms(1_000);
/// Recording the deliveries of text clients has so long.
pub(crate) const TEXT_STOP_DELIVERIES: Duration = ms(300);
/// Tasks that still run have so long to end before they are dropped.
pub(crate) const RUNTIME_STOP: Duration = ms(200);

const _: () = {
    const fn is_shorter(one: Duration, other: Duration) -> bool {
        one.as_micros() < other.as_micros()
    }
    assert!(
        is_shorter(SEGMENT_INFO_NEWS, SEGMENT_INFO),
        "a copy's owner answers before whoever asks gives up"
    );
    assert!(is_shorter(CONFIRM_NEWS, CONFIRM), "a replica answers its leader before the leader gives up");
    assert!(
        is_shorter(MESSAGE_NEWS, PREPARE),
        "a node hears of a segment before its preparation is given up"
    );
    assert!(is_shorter(RECOVERY_ATTEMPT, OTHERS_ATTEMPT), "an attempt ends before others take its place");
    assert!(is_shorter(RECOVERY_ANSWER, RECOVERY_ATTEMPT), "an attempt hears of a silent replica");
    assert!(is_shorter(RECOVERY_ASKS_AGAIN, RECOVERY_ANSWER), "a replica is asked again in time");
    assert!(is_shorter(CURSOR_DURABLE, CURSOR_CALL), "an owner answers before the call to it is given up");
    assert!(
        is_shorter(PING_PAUSE, PING_ANSWER_MIN),
        "more than one ping is under way before a node is silent"
    );
};
