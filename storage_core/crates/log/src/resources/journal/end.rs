//! END: two pages, written in turn, that say how far the journal is. A journal that ends before that has lost its end;
//! without END it would look just like one whose last records were never written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::disk::{AlignedPage, Disk, DiskFile, FileKind, write_all};
use crate::error::{Error, Result};
use crate::format::fields::{Fields, PutFields};
use crate::format::{FORMAT_VERSION, SEQUENCE_MAX, checksum_around};
use crate::page::PAGE_BYTES;
use crate::sync::{Mutex, atomic::AtomicU64};

pub(crate) const END_NAME: &str = "END";
const MAGIC: &[u8; 8] = b"WALRUSEN";
const CHECKSUM_AT: usize = 12;
const PAGES: u64 = 2;

/// How far the journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// Number of the journal.
    pub(crate) number: u64,
    /// Sequence of the journal's last durable record.
    pub(crate) sequence: u64,
    /// Whether that record says that the store was closed in order.
    pub(crate) is_closed: bool,
    /// Boot id of the machine that has the record in memory only, because nothing of the store syncs; `None` if the
    /// record is durable.
    pub(crate) boot: Option<Uuid>,
}

/// The file END of a store.
pub(crate) struct EndFile {
    disk: Arc<dyn Disk>,
    store: Uuid,
    /// Turn of the last page that was written; the next turn writes the other page.
    turn: AtomicU64,
    file: Mutex<Option<Arc<dyn DiskFile>>>,
}

/// Contents of a store's END, and whether it is unreadable though it should be there.
pub(crate) struct EndRead {
    pub(crate) end: Option<End>,
    pub(crate) file: EndFile,
}

impl EndFile {
    /// Reads the newer of the whole pages. A page about the memory of another boot says nothing any more.
    pub(crate) fn read(disk: &Arc<dyn Disk>, store: Uuid) -> Result<EndRead> {
        let path = disk.path(END_NAME);
        let failed = |e| Error::io("read", &path, e);
        let names = disk.list().map_err(failed)?;
        let boot = disk.boot();
        let (mut newest, mut turn): (Option<(u64, End)>, u64) = (None, 0);
        let mut file: Option<Arc<dyn DiskFile>> = None;
        if names.iter().any(|name| name == END_NAME) {
            let opened = disk.open(END_NAME, PAGES * PAGE_BYTES, FileKind::Pages).map_err(failed)?;
            let mut bytes = Vec::new();
            opened.read(0, (PAGES * PAGE_BYTES) as usize, &mut bytes).map_err(failed)?;
            for page in bytes.chunks(PAGE_BYTES as usize) {
                match decode(page, store) {
                    Page::End(of_page, end) => {
                        turn = turn.max(of_page);
                        let counts = end.boot.is_none() || end.boot == boot;
                        if counts && newest.is_none_or(|(known, _)| known < of_page) {
                            newest = Some((of_page, end));
                        }
                    }
                    Page::Other(found) => {
                        return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
                    }
                    Page::Damaged => {}
                }
            }
            file = Some(opened);
        }
        let turn = AtomicU64::new(turn);
        let file = Self { disk: Arc::clone(disk), store, turn, file: Mutex::new(file) };
        Ok(EndRead { end: newest.map(|(_, end)| end), file })
    }

    /// Writes what `look` finds into the older page, durably if that is durable. Pages are written in the order of
    /// their looks, so a later one never says less. A failure is logged and changes nothing: what the file said before
    /// still holds.
    pub(crate) fn write(&self, look: impl FnOnce() -> End) {
        if let Err(error) = self.try_write(look) {
            let path = self.disk.path(END_NAME);
            tracing::warn!(path, %error, "how far the journal is was not written");
        }
    }

    /// Closes the file; a later write opens it again.
    pub(crate) fn let_go(&self) {
        *self.file.lock() = None;
    }

    fn try_write(&self, look: impl FnOnce() -> End) -> std::io::Result<()> {
        let mut file = self.file.lock();
        let end = look();
        let opened = match &*file {
            Some(opened) => Arc::clone(opened),
            None => {
                let made = self.disk.create(END_NAME, PAGES * PAGE_BYTES, FileKind::Pages)?;
                self.disk.sync_directory()?;
                *file = Some(Arc::clone(&made));
                made
            }
        };
        let turn = self.turn.load(Ordering::Acquire) + 1;
        let page = AlignedPage::padded(&encode(self.store, turn, end));
        write_all(&*opened, turn % PAGES * PAGE_BYTES, &[&page], end.boot.is_none())?;
        self.turn.store(turn, Ordering::Release);
        Ok(())
    }
}

pub(super) enum Page {
    /// Turn of the page, and its contents.
    End(u64, End),
    /// A page of another format.
    Other(u32),
    /// A page that is damaged or was never written.
    Damaged,
}

pub(super) fn encode(store: Uuid, turn: u64, end: End) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES as usize);
    out.put(MAGIC);
    out.put_u32(FORMAT_VERSION);
    out.put_u32(0); // checksum, below
    out.put_uuid(store);
    out.put_u64(turn);
    out.put_u64(end.number);
    out.put_u64(end.sequence);
    out.put_u32(u32::from(end.is_closed));
    out.put_uuid(end.boot.unwrap_or_default());
    out.resize(PAGE_BYTES as usize, 0);
    let crc = checksum_around(&out, CHECKSUM_AT);
    out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
    out
}

pub(super) fn decode(page: &[u8], store: Uuid) -> Page {
    (|| {
        let mut fields = Fields(page);
        if fields.bytes(8)? != MAGIC || page.len() != PAGE_BYTES as usize {
            return None;
        }
        let version = fields.u32()?;
        if fields.u32()? != checksum_around(page, CHECKSUM_AT) {
            return None;
        }
        if version != FORMAT_VERSION {
            return Some(Page::Other(version));
        }
        if fields.uuid()? != store {
            return None;
        }
        let turn = fields.u64()?;
        let (number, sequence) = (fields.u64()?, fields.u64()?);
        if turn.max(sequence) > SEQUENCE_MAX {
            return None; // nothing may count on from there
        }
        let (is_closed, boot) = (fields.u32()? == 1, fields.uuid()?);
        let boot = (!boot.is_nil()).then_some(boot);
        Some(Page::End(turn, End { number, sequence, is_closed, boot }))
    })()
    .unwrap_or(Page::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{SimulatedDisk, TailKind};

    #[test]
    fn a_page_comes_back_and_no_flipped_bit_passes() {
        let (store, end) = (
            Uuid::from_u128(1),
            End { number: 7, sequence: 900, is_closed: true, boot: Some(Uuid::from_u128(3)) },
        );
        let good = encode(store, 5, end);
        assert!(matches!(decode(&good, store), Page::End(5, read) if read == end));
        assert!(matches!(decode(&good, Uuid::from_u128(2)), Page::Damaged));
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[position] ^= 1 << bit;
                assert!(matches!(decode(&bytes, store), Page::Damaged), "byte {position} bit {bit}");
            }
        }
        assert!(matches!(decode(&good[..100], store), Page::Damaged));
        assert!(matches!(decode(&[0; 4096], store), Page::Damaged));
        let beyond = End { sequence: u64::MAX, ..end };
        assert!(matches!(decode(&encode(store, 5, beyond), store), Page::Damaged));
        assert!(matches!(decode(&encode(store, u64::MAX, end), store), Page::Damaged), "no turn follows");
    }

    #[test]
    fn pages_are_written_in_turn_and_a_torn_one_leaves_the_other() {
        let simulated = SimulatedDisk::new(TailKind::Buffered);
        let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
        let store = Uuid::from_u128(1);
        let end = |sequence| End { number: 1, sequence, is_closed: false, boot: None };
        let read = || EndFile::read(&disk, store).unwrap();
        assert_eq!(read().end, None);
        let file = read().file;
        for sequence in 1..6 {
            file.write(|| end(sequence));
            assert_eq!(read().end, Some(end(sequence)));
        }
        // The fifth write goes to the second page.
        simulated.flip(END_NAME, 4096 + 40, 1);
        assert_eq!(read().end, Some(end(4)));
    }

    #[test]
    fn what_another_boot_had_in_memory_is_not_believed_and_its_turn_is_not_used_again() {
        let simulated = SimulatedDisk::new(TailKind::Buffered);
        let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
        let store = Uuid::from_u128(1);
        let file = EndFile::read(&disk, store).unwrap().file;
        let durable = End { number: 1, sequence: 5, is_closed: false, boot: None };
        let in_memory = End { sequence: 9, is_closed: true, boot: disk.boot(), ..durable };
        file.write(|| durable);
        file.write(|| in_memory);
        assert_eq!(EndFile::read(&disk, store).unwrap().end, Some(in_memory));
        let other: Arc<dyn Disk> =
            Arc::new(SimulatedDisk::from_contents(TailKind::Buffered, &simulated.contents()));
        let read = EndFile::read(&other, store).unwrap();
        assert_eq!(read.end, Some(durable));
        let later = End { sequence: 6, ..durable };
        read.file.write(|| later);
        assert_eq!(EndFile::read(&other, store).unwrap().end, Some(later));
    }
}
