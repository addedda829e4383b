//! Checks append requests, and turns each into one RecordBatch v2.

use bytes::Bytes;
use walrus_log::batch::{Batch, BatchBuilder, BatchError, ProducerRef};

use crate::broker::Broker;
use crate::edge::{Operation, Principal, Resource, is_allowed};
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::node::proto::v1::{AppendRequest, Header, Producer, Records, append_request};
use crate::partition::ack::AppendAck;

/// The partition to which a principal's append goes, and the bytes of its batch.
pub(super) fn batch_of(request: AppendRequest, principal: &Principal) -> Result<(PartitionRef, Bytes)> {
    let AppendRequest { topic, partition, payload, producer, correlation: _ } = request;
    let to = principal.partition(&topic, partition)?;
    let batch = match payload {
        Some(append_request::Payload::Records(records)) => build(&records, producer.as_ref())?,
        Some(append_request::Payload::Batch(batch)) => {
            if producer.is_some() {
                return Err(invalid(
                    "`producer` goes with `records`; a ready batch has its producer in its header",
                ));
            }
            check(&batch)?;
            batch
        }
        None => return Err(invalid("an append needs `records` or `batch`")),
    };
    Ok((to, batch))
}

/// Appends for a principal; a topic that there is not is made only for one that may make it.
pub(super) async fn append(
    broker: &Broker,
    principal: &Principal,
    to: &PartitionRef,
    batch: Bytes,
) -> Result<AppendAck> {
    if is_allowed(principal, Operation::Create, Resource::Topic(&to.topic)) {
        broker.append(to, batch).await
    } else {
        broker.append_to_existing(to, batch).await
    }
}

fn build(Records { records }: &Records, producer: Option<&Producer>) -> Result<Bytes> {
    if records.is_empty() {
        return Err(invalid("an append needs at least one record"));
    }
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        let epoch = i16::try_from(producer.epoch);
        let epoch =
            epoch.map_err(|_| invalid(&format!("producer epoch {} is not in 0..=32767", producer.epoch)))?;
        builder.producer(ProducerRef { id: producer.id, epoch, base_sequence: producer.base_sequence });
    }
    let now = clock::now_ms();
    let mut headers = Vec::new();
    for record in records {
        headers.clear();
        headers.extend(record.headers.iter().map(|Header { key, value }| (key.as_str(), value.as_deref())));
        let timestamp_ms = if record.timestamp_ms == 0 { now } else { record.timestamp_ms };
        builder.push(record.key.as_deref(), record.value.as_deref(), timestamp_ms, &headers);
    }
    let mut batch = Vec::with_capacity(builder.size_bytes());
    builder.build(&mut batch).map_err(invalid_batch)?;
    Ok(batch.into())
}

/// Checks that a ready batch is whole, alone, and readable to its last record.
fn check(bytes: &[u8]) -> Result<()> {
    let (batch, rest) = Batch::parse(bytes).map_err(invalid_batch)?;
    if !rest.is_empty() {
        let problem = format!("{} bytes are left behind it; one append takes one batch", rest.len());
        return Err(Error::InvalidBatch { problem });
    }
    if batch.is_compressed() {
        let problem = format!(
            "its records are compressed with {}; Walrus stores uncompressed batches for now: produce without compression",
            batch.codec_name()
        );
        return Err(Error::InvalidBatch { problem });
    }
    if batch.header().is_transactional() {
        return Err(Error::InvalidBatch {
            problem: "it is part of a transaction; there are none".to_owned(),
        });
    }
    batch.verify_records().map_err(invalid_batch)
}

fn invalid(problem: &str) -> Error {
    Error::InvalidRequest { problem: problem.to_owned() }
}

fn invalid_batch(problem: BatchError) -> Error {
    Error::InvalidBatch { problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::names::OrgName;
    use crate::node::proto::v1::Record;

    fn batch_of(request: AppendRequest) -> Result<(PartitionRef, Bytes)> {
        super::batch_of(request, &Principal::anonymous(OrgName::default(), true))
    }

    fn request(payload: Option<append_request::Payload>) -> AppendRequest {
        AppendRequest { topic: "t".to_owned(), partition: 3, payload, producer: None, correlation: 1 }
    }

    fn records(records: Vec<Record>) -> AppendRequest {
        request(Some(append_request::Payload::Records(Records { records })))
    }

    fn ready(bytes: impl Into<Bytes>) -> AppendRequest {
        request(Some(append_request::Payload::Batch(bytes.into())))
    }

    fn record(value: &'static [u8]) -> Record {
        Record { value: Some(Bytes::from_static(value)), ..Record::default() }
    }

    #[test]
    fn records_become_one_batch_with_their_producer() {
        let header = Header { key: "h".to_owned(), value: Some(Bytes::from_static(b"1")) };
        let first = Record {
            key: Some(Bytes::from_static(b"k")),
            timestamp_ms: 7,
            headers: vec![header],
            ..record(b"a")
        };
        let mut request = records(vec![first, Record::default()]);
        request.producer = Some(Producer { id: 5, epoch: 1, base_sequence: 9 });
        let (to, bytes) = batch_of(request).unwrap();
        assert_eq!(to.to_string(), "t/3");
        let (batch, rest) = Batch::parse(&bytes).unwrap();
        assert!(rest.is_empty());
        assert_eq!(batch.producer(), Some(ProducerRef { id: 5, epoch: 1, base_sequence: 9 }));
        let records: Vec<_> = batch.records().map(Result::unwrap).collect();
        assert_eq!(
            (records[0].key, records[0].value, records[0].timestamp_ms),
            (Some(&b"k"[..]), Some(&b"a"[..]), 7)
        );
        assert_eq!(records[0].headers.map(|header| header.key).collect::<Vec<_>>(), ["h"]);
        assert_eq!((records[1].key, records[1].value), (None, None));
        assert!(records[1].timestamp_ms > 0, "the broker's time stands in for 0");
    }

    #[test]
    fn a_ready_batch_goes_through_unchanged() {
        let (_, built) = batch_of(records(vec![record(b"a"), record(b"b")])).unwrap();
        let (_, bytes) = batch_of(ready(built.clone())).unwrap();
        assert_eq!(bytes, built);
    }

    #[test]
    fn a_compressed_batch_is_refused_by_the_name_of_its_codec() {
        let (_, good) = batch_of(records(vec![record(&[b'a'; 100])])).unwrap();
        let (batch, _) = Batch::parse(&good).unwrap();
        for (codec, name) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
            let refused = batch_of(ready(batch.compressed(codec).unwrap())).unwrap_err().to_string();
            assert!(refused.contains(&format!("its records are compressed with {name};")), "{refused}");
        }
        let mut unknown = good.to_vec();
        unknown[22] |= 5;
        let unknown = batch_of(ready(unknown)).unwrap_err().to_string();
        assert!(unknown.contains("compressed with codec 5; known are 1 gzip"), "{unknown}");
    }

    #[test]
    fn what_cannot_be_stored_is_refused_with_its_reason() {
        let (_, good) = batch_of(records(vec![record(b"abc")])).unwrap();
        let refused = |request| batch_of(request).unwrap_err().to_string();
        assert_eq!(refused(request(None)), "invalid request: an append needs `records` or `batch`");
        assert_eq!(refused(records(Vec::new())), "invalid request: an append needs at least one record");
        assert!(refused(ready(good.slice(..good.len() - 1))).contains("cut off"));
        assert!(refused(ready([good.clone(), good.clone()].concat())).contains("one append takes one batch"));
        let mut flipped = good.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(refused(ready(flipped)).contains("checksum"));
        let mut with_producer = ready(good);
        with_producer.producer = Some(Producer::default());
        assert!(refused(with_producer).contains("`producer` goes with `records`"));
        let mut epoch = records(vec![record(b"a")]);
        epoch.producer = Some(Producer { id: 1, epoch: 40_000, base_sequence: 0 });
        assert!(refused(epoch).contains("epoch 40000"));
        let mut topic = records(vec![record(b"a")]);
        topic.topic = "a b".to_owned();
        assert!(refused(topic).contains("invalid topic name"));
    }
}
