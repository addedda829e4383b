//! Answers to requests of APIs and versions that are not served: where the answer has one place for an error, whatever was asked,
//! it says so; else nobody knows how to answer, and the connection is closed, as Kafka's brokers do.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, DescribeClusterResponse, FetchResponse, FindCoordinatorResponse,
    HeartbeatResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse, ListGroupsResponse,
    SaslAuthenticateResponse, SaslHandshakeResponse, SyncGroupResponse,
};

use super::answer::Answer;
use super::apis::{OFFERS, Offered};
use super::frame::Header;

const UNSUPPORTED: i16 = ResponseError::UnsupportedVersion.code();

/// The answer to a request that is not served; `None` if there is none.
pub(super) fn answer(header: Header) -> Option<Answer> {
    let Header { api, version, correlation } = header;
    macro_rules! refused {
        ($response:ty) => {
            Answer::of(correlation, version, &<$response>::default().with_error_code(UNSUPPORTED)).ok()
        };
    }
    match ApiKey::try_from(api).ok()? {
        // Whoever asks which versions there are gets them by version 0, which everybody reads (KIP-511).
        ApiKey::ApiVersions => Answer::of(correlation, 0, &versions_refused()).ok(),
        ApiKey::Fetch if version >= 7 => refused!(FetchResponse),
        ApiKey::InitProducerId => refused!(InitProducerIdResponse),
        ApiKey::FindCoordinator if version < 4 => refused!(FindCoordinatorResponse),
        ApiKey::JoinGroup => refused!(JoinGroupResponse),
        ApiKey::SyncGroup => refused!(SyncGroupResponse),
        ApiKey::Heartbeat => refused!(HeartbeatResponse),
        ApiKey::LeaveGroup => refused!(LeaveGroupResponse),
        ApiKey::ListGroups => refused!(ListGroupsResponse),
        ApiKey::SaslHandshake => refused!(SaslHandshakeResponse),
        ApiKey::SaslAuthenticate => refused!(SaslAuthenticateResponse),
        ApiKey::DescribeCluster => refused!(DescribeClusterResponse),
        _ => None,
    }
}

/// The answer to a version of ApiVersions that is not known. It names the one that is: kafka-python takes an empty list for a
/// broker of long ago.
fn versions_refused() -> ApiVersionsResponse {
    let known = OFFERS.iter().filter(|offer| offer.api == Offered::ApiVersions).map(|offer| {
        let row = ApiVersion::default().with_api_key(offer.key);
        row.with_min_version(offer.told_from).with_max_version(offer.max)
    });
    ApiVersionsResponse::default().with_error_code(UNSUPPORTED).with_api_keys(known.collect())
}
