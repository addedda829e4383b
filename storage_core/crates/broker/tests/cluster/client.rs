//! A client's side of the tests: appends and reads.

use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_broker::{AppendAck, Broker, PartitionRef, ReadOptions, Result, TopicPath};
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};

use crate::harness::PATIENCE;

/// A topic of the organisation `default`.
pub(crate) fn named(name: &str) -> TopicPath {
    TopicPath::parse(name).expect("a name of a topic")
}

/// A batch of records with these values.
pub(crate) fn batch_of(values: &[String], producer: Option<ProducerRef>) -> Bytes {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    for value in values {
        builder.push(None, Some(value.as_bytes()), 1_700_000_000_000, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).unwrap();
    bytes.into()
}

pub(crate) async fn put(broker: &Broker, to: &PartitionRef, value: &str) -> Result<AppendAck> {
    broker.append(to, batch_of(&[value.to_owned()], None)).await
}

pub(crate) fn options(wait: Duration) -> ReadOptions {
    ReadOptions { bytes_max: 64 << 10, wait, segment: None, unconfirmed: false }
}

/// Reads values and their offsets from `offset` until there are `count`.
pub(crate) async fn read_values(
    broker: &Broker,
    from: &PartitionRef,
    mut offset: u64,
    count: usize,
) -> Vec<(u64, String)> {
    let until = Instant::now() + PATIENCE;
    let mut values = Vec::new();
    while values.len() < count {
        assert!(Instant::now() < until, "{} of {count} values after a long time", values.len());
        let page = match broker.read(from, offset, options(Duration::from_secs(2))).await {
            Ok(page) => page,
            Err(error) if error.retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for bytes in page.batches() {
            let bytes = bytes.unwrap();
            let (batch, _) = Batch::parse(&bytes).unwrap();
            for record in
                batch.records().map(|record| record.unwrap()).filter(|record| record.offset >= offset)
            {
                values.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
            }
        }
        offset = page.next_offset;
    }
    values
}
