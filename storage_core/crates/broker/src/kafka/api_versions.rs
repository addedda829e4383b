//! ApiVersions: which APIs there are, in which versions. No tagged field is written: librdkafka up to 2.1 reads what is behind
//! one at the wrong place, and kcat of Debian 12 then does not connect.

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::apis::{OFFERS, Offer, Offered};
use super::clients;

/// The APIs that the client which asks is told.
pub(super) fn answer(request: &ApiVersionsRequest) -> ApiVersionsResponse {
    let (name, version) = (&request.client_software_name, &request.client_software_version);
    let is_librdkafka = clients::is_librdkafka(name, version);
    let is_told = |offer: &&Offer| !(is_librdkafka && is_kept_from_librdkafka(offer.api));
    let rows = OFFERS.iter().filter(is_told).map(|offer| {
        let row = ApiVersion::default().with_api_key(offer.key);
        row.with_min_version(offer.told_from).with_max_version(offer.max)
    });
    ApiVersionsResponse::default().with_api_keys(rows.collect())
}

/// Whether clients that are built on librdkafka are not told of this API, because they lose records by it. One that asks where its
/// epoch ends holds the answer against the offset that it has reached when metadata come next, not against the one of its question.
/// Where it has read on into the next epoch meanwhile, it takes the log for cut: it goes on where its epoch ended, and drops what
/// it holds for the application before that (librdkafka 2.1 to 2.16). Epochs grow with each segment here. A client that is not told
/// asks nothing, and misses one thing: an administrator who gives records up, which alone cuts off what was readable.
fn is_kept_from_librdkafka(api: Offered) -> bool {
    api == Offered::OffsetForLeaderEpoch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::answer::Answer;

    /// A broker that wrote four tagged fields of their default values was of no use to librdkafka 2.0: "read underflow".
    #[test]
    fn the_answer_has_no_tagged_fields_and_an_old_header() {
        let answer = Answer::of(7, 3, &answer(&ApiVersionsRequest::default())).unwrap();
        let bytes = answer.pieces.concat();
        let rows = u8::try_from(OFFERS.len()).unwrap();
        let length = 12 + 7 * rows;
        assert_eq!(bytes[..8], [0, 0, 0, length, 0, 0, 0, 7], "the header is that of version 0 always");
        assert_eq!(bytes[8..11], [0, 0, rows + 1], "no error, and all rows");
        assert_eq!(bytes[bytes.len() - 5..], [0; 5], "no throttling, and no tagged fields");
    }
}
