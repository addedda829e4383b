//! Entry points of the fuzz targets of the sockets, which each test run calls with random bytes, too: whatever a stranger
//! sends is an answer or a refusal, never a panic. What is decoded and encoded again is the same.

use bytes::BytesMut;
use futures_util::FutureExt as _;
use prost::Message;

use crate::copies::wire::decode_ask;
use crate::kafka::request::Request;
use crate::kafka::{frame, request, validation};
use crate::node::proto::peer::{
    Confirm, CursorRequest, Fetch, FindTime, ForwardAppend, GroupRequest, Hello, Prepare, Proof,
    ReplicaRequest, SegmentInfo,
};
use crate::peer::frame::{FRAME_BYTES_MAX, FrameReader};
use crate::text::codec;
use crate::text::command::Command;

/// Limit on the bytes of a frame of the text protocol here.
const TEXT_BYTES_MAX: u32 = 1 << 20;

/// Takes bytes from another broker, or from somebody who claims to be one, as frames, and each payload as every kind of message.
pub fn peer_frames(bytes: &[u8]) {
    let (mut reader, mut taken) = (FrameReader::new(bytes), 0);
    // A slice never lets anybody wait.
    while let Some(Ok(Some(frame))) = reader.next(FRAME_BYTES_MAX).now_or_never() {
        let again = frame.to_bytes();
        assert_eq!(again, bytes[taken..taken + again.len()]);
        taken += again.len();
        message::<Hello>(&frame.payload);
        message::<Proof>(&frame.payload);
        message::<Fetch>(&frame.payload);
        message::<FindTime>(&frame.payload);
        message::<ForwardAppend>(&frame.payload);
        message::<Prepare>(&frame.payload);
        message::<SegmentInfo>(&frame.payload);
        message::<Confirm>(&frame.payload);
        message::<CursorRequest>(&frame.payload);
        message::<GroupRequest>(&frame.payload);
        if let Some(request) = message::<ReplicaRequest>(&frame.payload) {
            drop(decode_ask(request));
        }
    }
}

fn message<M: Message + Default + PartialEq>(payload: &[u8]) -> Option<M> {
    let message = M::decode(payload).ok()?;
    assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|again| again == message));
    Some(message)
}

/// Takes bytes from a client of the text protocol as frames and commands.
pub fn text_frames(bytes: &[u8]) {
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = codec::decode(&mut input, TEXT_BYTES_MAX) {
        if let Ok(text) = codec::text(&frame)
            && let Ok(command) = Command::parse(text)
        {
            assert!(text.starts_with(command.word()));
        }
    }
}

/// Takes bytes from a client of Kafka's protocol as frames and requests, and what is to be appended as batches.
pub fn kafka_frames(bytes: &[u8]) {
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = frame::decode(&mut input) {
        let Ok((header, request)) = request::decode(frame) else { return };
        let Some(Request::Produce(request)) = request else { continue };
        let data = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
        for records in data.filter_map(|data| data.records.as_ref()) {
            drop(validation::check(records, header.version, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::node::proto::peer::{ReplicaAppend, replica_request};
    use crate::peer::frame::Frame;

    /// A frame whose bytes mean something.
    fn append(epoch: u32, offset: u64, batch: Vec<u8>) -> BytesMut {
        let id = Bytes::from_static(&[7; 16]);
        let append = ReplicaAppend {
            epoch,
            writer: id.clone(),
            offset,
            batches: vec![batch.into()],
            ..ReplicaAppend::default()
        };
        let message = Some(replica_request::Message::Append(append));
        let request = ReplicaRequest { segment: id.clone(), disk: id, message, ..ReplicaRequest::default() };
        Frame { kind: 10, id: 1, payload: request.encode_to_vec().into() }.to_bytes()
    }

    #[test]
    fn no_input_that_fuzzing_found_worth_keeping_breaks_a_decoder() {
        type Decoder = fn(&[u8]);
        let decoders = [
            ("peer_frames", peer_frames as Decoder),
            ("text_frames", text_frames),
            ("kafka_frames", kafka_frames),
        ];
        for (name, decode) in decoders {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
            let files: Vec<_> = fs::read_dir(&corpus).unwrap().collect();
            assert!(!files.is_empty(), "{} is empty", corpus.display());
            for file in files {
                let bytes = fs::read(file.unwrap().path()).unwrap();
                (0..=bytes.len()).for_each(|end| decode(&bytes[..end]));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_peer_are_frames_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            peer_frames(&bytes);
        }

        #[test]
        fn a_frame_of_a_peer_in_which_bytes_changed_is_one_or_refused(
            (epoch, offset) in any::<(u32, u64)>(),
            batch in proptest::collection::vec(any::<u8>(), 0..80),
            changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        ) {
            let mut bytes = append(epoch, offset, batch);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            peer_frames(&bytes);
        }

        #[test]
        fn any_text_of_a_client_is_a_command_or_refused(
            words in proptest::collection::vec("(PUT|GET|GETAT|REGISTER|STATE|DELETE|COMMIT|[ -~]{0,9}|\\PC{0,5})", 0..6),
            rest in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = BytesMut::new();
            codec::encode(&words.join(" "), b"", &mut bytes);
            bytes.extend_from_slice(&rest);
            text_frames(&bytes);
            text_frames(&rest);
        }

        #[test]
        fn a_frame_of_a_kafka_client_in_which_bytes_changed_is_one_or_refused(
            changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
            cut: prop::sample::Index,
        ) {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/kafka_frames/all");
            let mut bytes = fs::read(corpus).unwrap();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            kafka_frames(&bytes[cut.index(bytes.len())..]);
            kafka_frames(&bytes);
        }
    }
}
