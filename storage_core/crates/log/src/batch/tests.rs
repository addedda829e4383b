//! Tests of the encoding of batches: against a model, against hostile bytes, and against a batch that is written down
//! byte by byte.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// A record as plain owned values, to compare with.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn build(records: &[Model], producer: Option<ProducerRef>) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut out = Vec::new();
    push_all(&mut builder, records);
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    builder.build(&mut out).unwrap();
    out
}

fn push_all(builder: &mut BatchBuilder, records: &[Model]) {
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        builder.push(record.key.as_deref(), record.value.as_deref(), record.timestamp_ms, &headers);
    }
}

fn read(batch: &Batch<'_>) -> Result<Vec<Model>, BatchError> {
    batch
        .records()
        .map(|record| {
            record.map(|record| Model {
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                timestamp_ms: record.timestamp_ms,
                headers: record.headers.map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
            })
        })
        .collect()
}

fn models() -> impl Strategy<Value = Vec<Model>> {
    let bytes = || option::of(vec(any::<u8>(), 0..80));
    let headers = vec((".{0,6}", bytes()), 0..4);
    let record = (bytes(), bytes(), any::<i64>(), headers)
        .prop_map(|(key, value, timestamp_ms, headers)| Model { key, value, timestamp_ms, headers });
    vec(record, 1..40)
}

fn producers() -> impl Strategy<Value = Option<ProducerRef>> {
    let producer = (0..=i64::MAX, 0..=i16::MAX, 0..=i32::MAX);
    option::of(producer.prop_map(|(id, epoch, base_sequence)| ProducerRef { id, epoch, base_sequence }))
}

/// A batch of two records in which every kind of field occurs.
fn small_batch() -> Vec<u8> {
    let plain = Model { key: None, value: Some(b"hello".to_vec()), timestamp_ms: 1_000, headers: vec![] };
    let full = Model {
        key: Some(b"k".to_vec()),
        value: None,
        timestamp_ms: 1_003,
        headers: vec![("h".to_owned(), Some(b"v".to_vec())), ("n".to_owned(), None)],
    };
    build(&[plain, full], Some(ProducerRef { id: 7, epoch: 1, base_sequence: 9 }))
}

#[test]
fn a_known_batch_has_exactly_kafkas_bytes() {
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 0, 0, 0, 0, 0,                    // base offset
        0, 0, 0, 76,                               // length
        0xff, 0xff, 0xff, 0xff,                    // leader epoch
        2,                                         // magic
        0x3f, 0x53, 0x0f, 0x5c,                    // CRC-32C, computed bit by bit elsewhere
        0, 0,                                      // attributes
        0, 0, 0, 1,                                // last offset delta
        0, 0, 0, 0, 0, 0, 0x03, 0xe8,              // base timestamp
        0, 0, 0, 0, 0, 0, 0x03, 0xeb,              // greatest timestamp
        0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 9,  // producer id, epoch, base sequence
        0, 0, 0, 2,                                // records
        22, 0, 0, 0, 1, 10, b'h', b'e', b'l', b'l', b'o', 0,
        28, 0, 6, 2, 2, b'k', 1, 4, 2, b'h', 2, b'v', 2, b'n', 1,
    ];
    assert_eq!(small_batch(), expected);
}

#[test]
fn patched_offsets_move_every_record_and_leave_the_checksum_right() {
    let mut bytes = small_batch();
    write_offsets(&mut bytes, 41, 6);
    let (batch, rest) = Batch::parse(&bytes).unwrap();
    assert!(rest.is_empty());
    assert_eq!((batch.base_offset(), batch.end_offset(), batch.header().leader_epoch), (41, 43, 6));
    assert_eq!(batch.records().map(|record| record.unwrap().offset).collect::<Vec<_>>(), [41, 42]);
}

#[test]
fn batches_back_to_back_are_taken_one_by_one() {
    let one = small_batch();
    let two = [one.clone(), one.clone()].concat();
    let (first, rest) = Batch::parse(&two).unwrap();
    assert_eq!(first.bytes(), one);
    assert_eq!(rest, one);
    assert_eq!(BatchHeader::peek(&two).unwrap().size_bytes(), one.len());
}

#[test]
fn a_flip_of_any_bit_is_refused_unless_a_broker_may_patch_the_byte() {
    let good = small_batch();
    for position in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[position] ^= 1 << bit;
            let patchable = position < 8 || (12..16).contains(&position);
            let negative_offset = position == 0 && bit == 7;
            let parsed = Batch::parse(&bytes);
            assert_eq!(
                parsed.is_ok(),
                patchable && !negative_offset,
                "byte {position} bit {bit}: {parsed:?}"
            );
        }
    }
}

#[test]
fn a_batch_cut_at_any_length_is_truncated() {
    let good = small_batch();
    for length in 0..good.len() {
        let needed = if length < HEADER_BYTES { HEADER_BYTES } else { good.len() } as u64;
        let expected = BatchError::Truncated { needed, available: length as u64 };
        assert_eq!(Batch::parse(&good[..length]).unwrap_err(), expected);
    }
}

/// A small batch with `bytes` written at `position` and the right checksum, as a wrong or hostile producer may send it.
fn forged(position: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = small_batch();
    batch[position..position + bytes.len()].copy_from_slice(bytes);
    sign(&mut batch);
    batch
}

fn sign(batch: &mut [u8]) {
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

#[test]
fn headers_that_break_a_rule_are_refused_with_its_facts() {
    let bytes = small_batch().len() as u64;
    let counts = |records, last_offset_delta| BatchError::InvalidCount { records, last_offset_delta, bytes };
    let (max, min) = (i32::MAX, i32::MIN);
    let many = [(max - 1).to_be_bytes().as_slice(), &small_batch()[27..57], &max.to_be_bytes()].concat();
    let cases: [(Vec<u8>, BatchError); 13] = [
        (forged(16, &[1]), BatchError::UnsupportedMagic { found: 1 }),
        (forged(8, &48_i32.to_be_bytes()), BatchError::InvalidLength { length: 48, least: 49 }),
        (forged(8, &(-1_i32).to_be_bytes()), BatchError::InvalidLength { length: -1, least: 49 }),
        (forged(8, &max.to_be_bytes()), BatchError::Truncated { needed: max as u64 + 12, available: bytes }),
        (forged(57, &[0; 4]), counts(0, 1)),
        (forged(57, &min.to_be_bytes()), counts(min, 1)),
        (forged(57, &3_i32.to_be_bytes()), counts(3, 1)),
        (forged(23, &many), counts(max, max - 1)),
        (forged(21, &5_i16.to_be_bytes()), BatchError::UnknownCodec { codec: 5 }),
        (forged(21, &0x20_i16.to_be_bytes()), BatchError::Control),
        (forged(53, &[0xff; 4]), BatchError::InvalidProducer { id: 7, epoch: 1, base_sequence: -1 }),
        (forged(51, &[0xff; 2]), BatchError::InvalidProducer { id: 7, epoch: -1, base_sequence: 9 }),
        (
            forged(0, &i64::MAX.to_be_bytes()),
            BatchError::InvalidOffset { base_offset: i64::MAX, last_offset_delta: 1 },
        ),
    ];
    for (batch, expected) in cases {
        assert_eq!(Batch::parse(&batch).unwrap_err(), expected);
    }
    assert_eq!(Batch::parse(&forged(43, &[0xff; 14])).unwrap().0.producer(), None);
}

#[test]
fn a_compressed_batch_passes_whole_and_does_not_open() {
    let bytes = forged(21, &4_i16.to_be_bytes());
    let (batch, _) = Batch::parse(&bytes).unwrap();
    assert!(batch.is_compressed());
    assert_eq!(batch.verify_records(), Ok(()));
    let records: Vec<_> = batch.records().collect();
    assert_eq!(records, [Err(BatchError::Compressed { codec: "zstd" })]);
}

#[test]
fn a_codec_is_told_by_its_name_and_an_unknown_one_by_its_number() {
    let said = |codec: i16| {
        let bytes = forged(21, &codec.to_be_bytes());
        let (batch, _) = Batch::parse(&bytes).map_err(|problem| problem.to_string())?;
        let problem = batch.records().next().unwrap().unwrap_err();
        assert!(problem.to_string().contains(batch.codec_name()), "{problem}");
        Ok(problem.to_string())
    };
    for (codec, name) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        let opened_first = format!("records are compressed with {name}: the batch has to be opened first");
        assert_eq!(said(codec), Ok(opened_first));
    }
    for codec in 5..=7 {
        let unknown =
            format!("batch is compressed with codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd");
        assert_eq!(said(codec), Err(unknown));
    }
}

#[test]
fn log_append_time_is_the_time_of_every_record() {
    let bytes = forged(21, &8_i16.to_be_bytes());
    let (batch, _) = Batch::parse(&bytes).unwrap();
    assert!(batch.records().all(|record| record.unwrap().timestamp_ms == 1_003));
    assert_eq!(batch.verify_records(), Ok(()));
}

#[test]
fn records_that_do_not_keep_their_batchs_word_are_found() {
    let reason = |bytes: &[u8]| match Batch::parse(bytes).unwrap().0.verify_records() {
        Err(BatchError::InvalidRecord { index, reason }) => (index, reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&forged(61, &[20])).0, 0); // The length is shorter than the fields.
    assert_eq!(reason(&forged(61, &[24])).0, 0); // The length is longer than the fields.
    assert_eq!(reason(&forged(61, &[1])), (0, "length is negative"));
    assert_eq!(reason(&forged(61, &[126])), (0, "length runs over the batch"));
    assert_eq!(reason(&forged(76, &[4])), (1, "offset delta is not the record's place in its batch"));
    assert_eq!(reason(&forged(77, &[3])), (1, "key is cut off")); // The key has a length of -2.
    assert_eq!(reason(&forged(80, &[1])), (1, "number of headers is negative"));
    assert_eq!(reason(&forged(81, &[1])), (1, "key of a header is missing or cut off"));
    assert_eq!(reason(&forged(82, &[0xff])), (1, "key of a header is not UTF-8"));
    assert_eq!(reason(&forged(35, &0_i64.to_be_bytes())), (1, "greatest timestamp differs from the batch's"));
    let mut longer = [small_batch().as_slice(), &[0]].concat();
    longer[11] += 1;
    sign(&mut longer);
    assert_eq!(reason(&longer), (1, "bytes are left behind the last record"));
}

#[test]
fn a_builder_is_empty_after_each_batch_and_keeps_its_memory() {
    let mut builder = BatchBuilder::new();
    let mut out = Vec::new();
    assert!(matches!(builder.build(&mut out), Err(BatchError::InvalidCount { records: 0, .. })));
    let producer = ProducerRef { id: 1, epoch: 0, base_sequence: 0 };
    builder.producer(producer).push(None, Some(&[1; 100]), 5, &[]).build(&mut out).unwrap();
    let first = out.len();
    builder.push(None, Some(&[2; 100]), 3, &[]).build(&mut out).unwrap();
    let (one, rest) = Batch::parse(&out).unwrap();
    let (two, rest) = Batch::parse(rest).map(|(batch, rest)| (batch, rest.len())).unwrap();
    assert_eq!((one.bytes().len(), one.producer(), one.max_timestamp()), (first, Some(producer), 5));
    assert_eq!((two.record_count(), two.producer(), two.max_timestamp(), rest), (1, None, 3, 0));
}

#[test]
fn more_than_a_batch_can_say_is_refused_and_the_builder_goes_on() {
    let mib = vec![0; 1 << 20];
    let beyond_2_gib = vec![("h", Some(mib.as_slice())); 2_049];
    let mut builder = BatchBuilder::new();
    let mut out = Vec::new();
    builder.push(None, Some(b"before"), 0, &[]).push(None, None, 0, &beyond_2_gib).push(None, None, 0, &[]);
    assert_eq!(builder.build(&mut out), Err(BatchError::TooLarge));
    assert!(out.is_empty());
    builder.push(None, Some(b"after"), 0, &[]).build(&mut out).unwrap();
    assert_eq!(Batch::parse(&out).unwrap().0.record_count(), 1);
}

#[test]
fn a_producer_without_a_sequence_is_not_built() {
    let wrong = ProducerRef { id: 1, epoch: 0, base_sequence: -1 };
    let expected = BatchError::InvalidProducer { id: 1, epoch: 0, base_sequence: -1 };
    let mut out = Vec::new();
    assert_eq!(BatchBuilder::new().producer(wrong).push(None, None, 0, &[]).build(&mut out), Err(expected));
    assert!(out.is_empty());
}

proptest! {
    #[test]
    fn what_is_built_is_read_back(records in models(), producer in producers(), base_offset in 0..u64::from(u32::MAX)) {
        let mut bytes = build(&records, producer);
        write_offsets(&mut bytes, base_offset, 3);
        let (batch, rest) = Batch::parse(&bytes).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(batch.record_count() as usize, records.len());
        prop_assert_eq!(batch.end_offset(), base_offset + records.len() as u64);
        prop_assert_eq!(Some(batch.max_timestamp()), records.iter().map(|record| record.timestamp_ms).max());
        prop_assert_eq!(batch.producer(), producer);
        prop_assert_eq!(batch.verify_records(), Ok(()));
        prop_assert_eq!(read(&batch).unwrap(), records);
    }

    /// What a broker patches for its own time: nothing else changes, whatever the codec, and all who read agree.
    #[test]
    fn append_time_is_the_time_of_every_record_and_leaves_all_else(
        records in models(),
        producer in producers(),
        codec in 0..5_u8,
        time in any::<i64>(),
        again in any::<i64>(),
    ) {
        let built = build(&records, producer);
        let before = Batch::parse(&built).unwrap().0.compressed(codec).unwrap();
        let (before, _) = Batch::parse(&before).unwrap();
        let once = before.with_append_time(again);
        let stamped = Batch::parse(&once).unwrap().0.with_append_time(time);
        let (stamped, rest) = Batch::parse(&stamped).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert!(stamped.header().is_log_append_time());
        prop_assert_eq!(stamped.max_timestamp(), time);
        let unchanged = |batch: &Batch<'_>| {
            let (header, bytes) = (*batch.header(), batch.bytes());
            let head = (header.codec(), header.base_timestamp, header.producer, header.records_left());
            (head, bytes[..17].to_vec(), bytes[23..35].to_vec(), bytes[43..].to_vec())
        };
        prop_assert_eq!(unchanged(&stamped), unchanged(&before));
        let opened = stamped.open().unwrap();
        let read: Vec<_> = stamped.header().records_in(&opened).map(|record| record.unwrap()).collect();
        prop_assert!(read.iter().all(|record| record.timestamp_ms == time));
        let values: Vec<_> = read.iter().map(|record| record.value.map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(values, records.iter().map(|record| record.value.clone()).collect::<Vec<_>>());
        prop_assert_eq!(stamped.walk_records().unwrap().timestamps, (time != -1).then_some(time..=time));
    }

    #[test]
    fn timestamps_are_those_of_the_records_that_have_one(records in models(), none in vec(any::<bool>(), 40), codec in 0..5_u8) {
        let mut records = records;
        for (record, _) in records.iter_mut().zip(&none).filter(|(_, none)| **none) {
            record.timestamp_ms = -1;
        }
        let built = build(&records, None);
        let bytes = Batch::parse(&built).unwrap().0.compressed(codec).unwrap();
        let times = || records.iter().map(|record| record.timestamp_ms).filter(|time| *time != -1);
        let expected = times().min().zip(times().max()).map(|(oldest, newest)| oldest..=newest);
        prop_assert_eq!(Batch::parse(&bytes).unwrap().0.walk_records().unwrap().timestamps, expected);
    }

    #[test]
    fn size_is_known_before_a_batch_is_built(records in models()) {
        let mut builder = BatchBuilder::new();
        push_all(&mut builder, &records);
        let size = builder.size_bytes();
        let mut out = vec![0xaa];
        builder.build(&mut out).unwrap();
        prop_assert_eq!(out.len(), 1 + size);
    }

    #[test]
    fn any_bytes_are_a_batch_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        let _ = BatchHeader::peek(&bytes);
        prop_assert!(Batch::parse(&bytes).is_err());
    }

    /// A hostile producer can make the checksum right; then only the walk over the records finds what is wrong.
    #[test]
    fn forged_records_give_as_many_records_as_promised_or_an_error(
        records in models(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = build(&records, None);
        for (position, byte) in edits {
            let position = 21 + position.index(bytes.len() - 21);
            bytes[position] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES));
            let length = u32::try_from(bytes.len() - 12).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        sign(&mut bytes);
        if let Ok((batch, _)) = Batch::parse(&bytes) {
            let read = batch.records().map(|record| record.map(|record| record.headers.count())).collect::<Vec<_>>();
            let errors = read.iter().filter(|record| record.is_err()).count();
            prop_assert!(errors <= 1 && read.len() <= batch.header().records_left() as usize);
            prop_assert!(errors == 1 || read.len() == batch.header().records_left() as usize);
        }
    }
}
