//! ApiVersions: which APIs there are, in which versions. No tagged field is written: librdkafka up to 2.1 reads what is behind
//! one at the wrong place, and kcat of Debian 12 then does not connect.

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::apis::OFFERS;

pub(super) fn answer() -> ApiVersionsResponse {
    let rows = OFFERS.iter().map(|offer| {
        let row = ApiVersion::default().with_api_key(offer.key);
        row.with_min_version(offer.told_from).with_max_version(offer.max)
    });
    ApiVersionsResponse::default().with_api_keys(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::answer::Answer;

    /// A broker that wrote four tagged fields of their default values was of no use to librdkafka 2.0: "read underflow".
    #[test]
    fn the_answer_has_no_tagged_fields_and_an_old_header() {
        let answer = Answer::of(7, 3, &answer()).unwrap();
        let bytes = answer.pieces.concat();
        let rows = u8::try_from(OFFERS.len()).unwrap();
        let length = 12 + 7 * rows;
        assert_eq!(bytes[..8], [0, 0, 0, length, 0, 0, 0, 7], "the header is that of version 0 always");
        assert_eq!(bytes[8..11], [0, 0, rows + 1], "no error, and all rows");
        assert_eq!(bytes[bytes.len() - 5..], [0; 5], "no throttling, and no tagged fields");
    }
}
