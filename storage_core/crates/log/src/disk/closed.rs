//! The file that takes the place of one that a closed store has let go of; every call of it fails.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{DiskFile, MappedRange, Prepare};

pub(crate) struct ClosedFile;

fn refused<T>() -> io::Result<T> {
    Err(io::Error::other("the store is closed"))
}

impl DiskFile for ClosedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        refused()
    }

    fn read(&self, _: u64, _: usize, _: &mut Vec<u8>) -> io::Result<()> {
        refused()
    }

    fn write(&self, _: u64, _: &[&[u8]], _: bool) -> io::Result<usize> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn prepare(&self, _: Range<u64>, _: Prepare) -> io::Result<()> {
        refused()
    }

    fn discard(&self, _: Range<u64>) -> io::Result<()> {
        refused()
    }

    fn data_ranges(&self, _: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        refused()
    }

    fn claim(self: Arc<Self>, _: Range<u64>) -> Box<dyn MappedRange> {
        panic!("only mapped files have ranges to claim")
    }
}
