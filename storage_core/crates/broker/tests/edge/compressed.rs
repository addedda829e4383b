//! Batches that producers compressed, read record by record through gRPC and the text protocol. No listener takes them yet:
//! they are appended behind it.

use serde_json::json;
use tonic::Code;
use walrus_broker::PartitionRef;
use walrus_broker::proto::v1::{ReadRequest, ReadResponse};
use walrus_log::batch::{Batch, BatchBuilder, OPENED_BYTES_MAX};

use crate::grpc_log::{all_of, batch, connect, create, read, ready, reason, values};
use crate::harness::Cluster;
use crate::text_client;

const CODECS: [&str; 4] = ["gzip", "snappy", "lz4", "zstd"];

/// Appends a batch to partition 0 as a listener would that takes compressed ones.
async fn append(cluster: &Cluster, topic: &str, batch: Vec<u8>) {
    cluster.broker(1).append(&PartitionRef::parse(topic, 0).unwrap(), batch.into()).await.unwrap();
}

fn compressed(values: &[&str], codec: u8) -> Vec<u8> {
    let bytes = batch(values);
    Batch::parse(&bytes).unwrap().0.compressed(codec).unwrap()
}

fn offsets(pages: &[ReadResponse]) -> Vec<u64> {
    pages.iter().flat_map(|page| &page.records).map(|record| record.offset).collect()
}

#[test]
fn records_of_each_codec_are_read_through_grpc_and_getat() {
    let cluster = Cluster::start(1, json!({}));
    let payloads = ["one", "two, two, two, two, two, two, two, two, two, two, two", ""];
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        for (codec, name) in (1..).zip(CODECS) {
            create(&mut client, name).await;
            append(&cluster, name, compressed(&payloads, codec)).await;
            append(&cluster, name, batch(&["plain"])).await;
            let pages = read(&mut client, all_of(name)).await;
            assert_eq!(values(&pages), [&payloads[..], &["plain"]].concat(), "{name}");
            assert_eq!(offsets(&pages), [0, 1, 2, 3], "{name}");
            // A read may begin in the middle of a batch, and end in it.
            let inner = ReadRequest { offset: 1, end_offset: Some(2), ..all_of(name) };
            assert_eq!(values(&read(&mut client, inner).await), [payloads[1]], "{name}");
        }
    });
    let mut client = text_client::connect(&cluster, 1);
    for name in CODECS {
        for (offset, payload) in payloads.iter().chain(&["plain"]).enumerate() {
            assert_eq!(client.ask(&format!("GETAT {name} {offset}")), format!("OK {payload}"), "{name}");
        }
        assert_eq!(client.ask(&format!("GETAT {name} 4")), "EMPTY");
    }
}

#[test]
fn a_batch_with_too_much_in_it_is_refused_by_name_and_the_others_are_read() {
    let cluster = Cluster::start(1, json!({}));
    let mut bytes = Vec::new();
    BatchBuilder::new().push(None, Some(&vec![0; OPENED_BYTES_MAX]), 1, &[]).build(&mut bytes).unwrap();
    let too_much = Batch::parse(&bytes).unwrap().0.compressed(4).unwrap();
    drop(bytes);
    let limit = "compressed with zstd have more than 268435456 bytes, opened";
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        create(&mut client, "t").await;
        append(&cluster, "t", too_much).await;
        append(&cluster, "t", batch(&["behind"])).await;
        let mut pages = client.read(all_of("t")).await.unwrap().into_inner();
        let status = pages.message().await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "InvalidBatch"));
        assert!(status.message().contains(limit), "{status:?}");
        assert!(status.message().contains("FORMAT_BATCHES"), "it says what to do: {status:?}");
        let behind = ReadRequest { offset: 1, ..all_of("t") };
        assert_eq!(values(&read(&mut client, behind).await), ["behind"]);
    });
    let mut client = text_client::connect(&cluster, 1);
    let refused = client.ask("GETAT t 0");
    assert!(refused.starts_with("ERR ") && refused.contains(limit), "{refused}");
    assert_eq!(client.ask("GETAT t 1"), "OK behind");
}

#[test]
fn a_codec_that_nobody_knows_is_named_when_it_is_appended() {
    let cluster = Cluster::start(1, json!({}));
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        create(&mut client, "t").await;
        for codec in 5..8 {
            let mut bytes = batch(&["x"]);
            bytes[22] |= codec;
            let crc = crc_fast::crc32_iscsi(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
            let status = client.append(ready("t", bytes)).await.unwrap_err();
            assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "InvalidBatch"));
            let named = format!("codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd");
            assert!(status.message().contains(&named), "{status:?}");
        }
        assert!(values(&read(&mut client, all_of("t")).await).is_empty());
    });
}

#[test]
fn records_that_are_no_stream_of_their_codec_are_their_producers_fault_and_said_to_be() {
    let cluster = Cluster::start(1, json!({}));
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        for (codec, name) in (1..).zip(CODECS) {
            create(&mut client, name).await;
            let mut bytes = compressed(&["x"], codec);
            bytes[61..].fill(0xff);
            let crc = crc_fast::crc32_iscsi(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
            append(&cluster, name, bytes).await;
            let status = client.read(all_of(name)).await.unwrap().into_inner().message().await.unwrap_err();
            assert_eq!(reason(&status), "InvalidBatch");
            let expected = format!("records are compressed with {name} and cannot be opened: ");
            assert!(status.message().contains(&expected), "{status:?}");
            let mut client = text_client::connect(&cluster, 1);
            let refused = client.ask(&format!("GETAT {name} 0"));
            assert!(refused.starts_with("ERR ") && refused.contains(&expected), "{refused}");
        }
    });
}
