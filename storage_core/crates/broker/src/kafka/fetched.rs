//! What a fetch has found in one partition: whole batches as they are stored, never more of them than were asked for.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use walrus_log::batch::BatchHeader;

/// What was found in a partition.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) index: i32,
    pub(super) error: Option<ResponseError>,
    /// First offset that cannot be read yet; -1 where it is not known.
    pub(super) high_watermark: i64,
    /// First offset that is there; -1 where it is not known.
    pub(super) log_start: i64,
    /// The leader and its epoch, where the client is told of them.
    pub(super) leader: Option<(u32, i32)>,
    /// Batches, each piece one or several.
    pub(super) pieces: Vec<Bytes>,
    pub(super) bytes: usize,
}

impl Fetched {
    /// A partition in which nothing was found yet.
    pub(super) fn nothing(index: i32) -> Self {
        Self {
            index,
            error: None,
            high_watermark: -1,
            log_start: -1,
            leader: None,
            pieces: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes as many of these batches as fit into `bytes_max`, and of those that are the answer's first the first one in any case: it
    /// would never be read otherwise. Answers the offset at which to go on; `None` if no batch was taken.
    pub(super) fn take(&mut self, pieces: Vec<Bytes>, bytes_max: usize, is_first: bool) -> Option<u64> {
        let mut next_offset = None;
        let mut left = bytes_max;
        for piece in pieces {
            let mut taken = 0;
            while let Some(rest) = piece.get(taken..).filter(|rest| !rest.is_empty()) {
                let Ok(header) = BatchHeader::peek(rest) else { break };
                let size = header.size_bytes();
                let may_exceed = is_first && next_offset.is_none();
                if size > rest.len() || (size > left && !may_exceed) {
                    break;
                }
                taken += size;
                left = left.saturating_sub(size);
                next_offset = Some(header.end_offset());
            }
            self.bytes += taken;
            let is_whole = taken == piece.len();
            if taken > 0 {
                self.pieces.push(piece.slice(..taken));
            }
            if !is_whole {
                break;
            }
        }
        next_offset
    }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::{BatchBuilder, write_offsets};

    use super::*;

    /// Batches of two records each, one behind the other from offset 0 on.
    fn batches(count: u64) -> Vec<Bytes> {
        let batch = |number| {
            let mut bytes = Vec::new();
            BatchBuilder::new()
                .push(None, Some(b"a"), 1, &[])
                .push(None, Some(b"b"), 1, &[])
                .build(&mut bytes)
                .unwrap();
            write_offsets(&mut bytes, number * 2, 1);
            Bytes::from(bytes)
        };
        (0..count).map(batch).collect()
    }

    #[test]
    fn batches_are_taken_up_to_the_limit_and_never_cut() {
        let single = batches(4);
        let size = single[0].len();
        let joined = vec![Bytes::from(single[..3].concat()), single[3].clone()];
        for (bytes_max, is_first, taken) in [
            (0, true, 1),
            (0, false, 0),
            (size - 1, true, 1),
            (size - 1, false, 0),
            (2 * size, false, 2),
            (2 * size + 1, true, 2),
            (9 * size, false, 4),
        ] {
            for pieces in [&single, &joined] {
                let mut found = Fetched::nothing(0);
                let next = found.take(pieces.clone(), bytes_max, is_first);
                assert_eq!(next, (taken > 0).then_some(taken * 2), "{bytes_max}");
                assert_eq!(found.bytes, usize::try_from(taken).unwrap() * size);
                assert_eq!(found.pieces.concat().len(), found.bytes);
            }
        }
    }
}
