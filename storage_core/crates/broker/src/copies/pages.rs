//! Pages of a segment's batches from its other copies: while one is written here, the next is on its way.

use bytes::Bytes;
use std::sync::Arc;
use tokio::task::JoinHandle;
use walrus_log::batch::Batch;
use walrus_model::{Descriptor, Offset, Value};

use crate::copies::Copies;
use crate::node::error::{Error, Result};

/// A segment's batches as they come, page by page, from the other copies.
pub(crate) struct Pages<'a> {
    copies: &'a Arc<Copies>,
    segment: &'a Descriptor,
    /// The decision on the segment: nobody has what is lost, and what lies behind the end is not wanted.
    decided: Value,
    /// The page that was asked for ahead, and the offset where it begins.
    ahead: Option<(Offset, JoinHandle<Result<Vec<Bytes>>>)>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(copies: &'a Arc<Copies>, segment: &'a Descriptor, decided: Value) -> Self {
        Self { copies, segment, decided, ahead: None }
    }

    /// Takes the page that begins at an offset, or behind what is lost there, and says where it begins; it is empty at the end.
    /// The page behind it is asked for.
    pub(crate) async fn take(&mut self, from: Offset) -> Result<(Offset, Vec<Bytes>)> {
        let from = self.decided.past_lost(from);
        if from >= self.decided.end {
            return Ok((from, Vec::new()));
        }
        let page = match self.ahead.take() {
            Some((at, page)) if at == from => page.await.map_err(|problem| Error::Internal {
                message: format!("a page of another copy: {problem}"),
            })??,
            _ => self.copies.fetch_from_any(self.segment, from).await?,
        };
        let next = self.decided.past_lost(end_of(&page)?);
        if next < self.decided.end {
            let (copies, segment) = (self.copies.clone(), self.segment.clone());
            let ahead = tokio::spawn(async move { copies.fetch_from_any(&segment, next).await });
            self.ahead = Some((next, ahead));
        }
        Ok((from, page))
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        if let Some((_, page)) = &self.ahead {
            page.abort();
        }
    }
}

/// The offset behind a page.
fn end_of(page: &[Bytes]) -> Result<Offset> {
    let empty = || Error::Internal { message: "a page of another copy is empty".to_owned() };
    let invalid =
        |problem: walrus_log::batch::BatchError| Error::InvalidBatch { problem: problem.to_string() };
    let (last, _) = Batch::parse(page.last().ok_or_else(empty)?).map_err(invalid)?;
    Ok(Offset(last.end_offset()))
}
