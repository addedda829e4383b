//! Requests: from the bytes of a frame to what a client asks, by way of the check of all lengths.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use kafka_protocol::protocol::Decodable;

use super::apis::{self, Offer, Offered};
use super::frame::{BadFrame, Header};
use super::schema::header_rest;

/// A request of an API that is offered.
pub(crate) enum Request {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    ListOffsets(ListOffsetsRequest),
    Metadata(MetadataRequest),
    ApiVersions(ApiVersionsRequest),
    InitProducerId(InitProducerIdRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
}

/// Takes the header off a frame and decodes the rest; `None` if that API or version is not served.
pub(crate) fn decode(mut frame: Bytes) -> Result<(Header, Option<Request>), BadFrame> {
    let header = Header::take(&mut frame);
    let offer = apis::find(header.api).filter(|offer| offer.serves(header.version));
    let request = offer.map(|offer| decode_body(offer, header, frame)).transpose()?;
    Ok((header, request))
}

fn decode_body(offer: &Offer, header: Header, mut frame: Bytes) -> Result<Request, BadFrame> {
    let version = header.version;
    let rest = header_rest(offer.schema.is_flexible(version), &frame);
    let mut body = frame.split_off(rest.map_err(|problem| header.malformed(problem))?);
    offer.schema.check(version, &body).map_err(|problem| header.malformed(problem))?;
    let decoded = match offer.api {
        Offered::Produce => ProduceRequest::decode(&mut body, version).map(Request::Produce),
        Offered::Fetch => FetchRequest::decode(&mut body, version).map(Request::Fetch),
        Offered::ListOffsets => ListOffsetsRequest::decode(&mut body, version).map(Request::ListOffsets),
        Offered::Metadata => MetadataRequest::decode(&mut body, version).map(Request::Metadata),
        Offered::ApiVersions => ApiVersionsRequest::decode(&mut body, version).map(Request::ApiVersions),
        Offered::InitProducerId => {
            InitProducerIdRequest::decode(&mut body, version).map(Request::InitProducerId)
        }
        Offered::OffsetForLeaderEpoch => {
            OffsetForLeaderEpochRequest::decode(&mut body, version).map(Request::OffsetForLeaderEpoch)
        }
    };
    decoded.map_err(|problem| header.malformed(problem))
}
