//! A disk in memory that knows what a power failure would leave. It keeps every change, so that the image that a crash
//! leaves after any of them can be built, with any part of the unsynced sectors and directory entries lost.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;

use super::crash::Change;
use super::{BackendInUse, Disk, DiskFile, FileKind, MappedRange, Prepare, SyncedWrites, TailKind};
use crate::page::PAGE_BYTES;
use crate::seeded;
use crate::sync::{Condvar, Mutex};

/// A simulated directory. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    tail_kind: TailKind,
    /// Identity of the machine's run. Each disk, so also each crash image, has its own.
    boot: Uuid,
    state: Arc<Mutex<State>>,
    stall: Arc<Stall>,
    read_stall: Arc<Stall>,
}

/// The way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO and writes nothing.
    Eio,
    /// The call fails with ENOSPC and writes nothing.
    Enospc,
    /// The call fails with EINTR and writes nothing.
    Eintr,
    /// A write of more than a page writes only half of its bytes. Other calls work.
    ShortWrite,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    history: Vec<Change>,
    faults: HashMap<u64, Fault>,
    calls: u64,
    /// Number of the call from which on every call fails, and how.
    broken_from: Option<(u64, Fault)>,
    read_faults: HashMap<u64, Fault>,
    reads: u64,
    syncs: u64,
    full: bool,
    locked: bool,
    /// Length to which a mapped file is cut when its pages are made ready next.
    cut_at_ready: Option<usize>,
}

#[derive(Default)]
struct Stall {
    is_stalled: Mutex<bool>,
    over: Condvar,
}

impl Stall {
    fn set(&self, stalled: bool) {
        *self.is_stalled.lock() = stalled;
        self.over.notify_all();
    }

    fn wait(&self) {
        let mut is_stalled = self.is_stalled.lock();
        while *is_stalled {
            is_stalled = self.over.wait(is_stalled);
        }
    }
}

impl SimulatedDisk {
    /// An empty directory, in which logs that do not sync each append have tails of this kind.
    pub fn new(tail_kind: TailKind) -> Self {
        Self {
            tail_kind,
            boot: Uuid::new_v4(),
            state: Arc::default(),
            stall: Arc::default(),
            read_stall: Arc::default(),
        }
    }

    /// The same directory as a program sees it that gives logs which do not sync each append tails of another kind.
    #[must_use]
    pub fn with_tails(&self, tail_kind: TailKind) -> Self {
        Self { tail_kind, ..self.clone() }
    }

    /// The kind of the tails of logs that do not sync each append.
    pub(super) fn tail_kind(&self) -> TailKind {
        self.tail_kind
    }

    /// Number of changes so far, which is a point in time for [`SimulatedDisk::crash_image`].
    pub fn changes(&self) -> usize {
        self.state.lock().history.len()
    }

    /// Lists the points in time right after a sync of a file or of the directory, or a durable write.
    pub fn sync_points(&self) -> Vec<usize> {
        let synced = |change: &Change| {
            matches!(
                change,
                Change::Sync { .. } | Change::SyncDirectory | Change::Write { durable: true, .. }
            )
        };
        let state = self.state.lock();
        state.history.iter().enumerate().filter(|(_, change)| synced(change)).map(|(i, _)| i + 1).collect()
    }

    /// Number of syncs of files and of durable writes so far, without those of preparation.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Number of calls so far that change something, and can fail.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Lets the call with this number (from 0) fail.
    pub fn fail_call(&self, call: u64, fault: Fault) {
        self.state.lock().faults.insert(call, fault);
    }

    /// Lets the call with this number (from 0) and all later ones fail.
    pub fn break_from(&self, call: u64, fault: Fault) {
        self.state.lock().broken_from = Some((call, fault));
    }

    /// Number of calls so far that read, open or list.
    pub fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// Lets the reading call with this number (from 0) fail.
    pub fn fail_read(&self, read: u64, fault: Fault) {
        self.state.lock().read_faults.insert(read, fault);
    }

    /// Lets every call work from now on.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.broken_from = None;
        state.read_faults.clear();
    }

    /// Sets whether the disk is full: then no file can be made and no space prepared.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Sets whether syncs and durable writes of files wait.
    pub fn set_stalled(&self, stalled: bool) {
        self.stall.set(stalled);
    }

    /// Sets whether reads of files wait. A read is counted before it waits.
    pub fn set_reads_stalled(&self, stalled: bool) {
        self.read_stall.set(stalled);
    }

    /// Flips the bits of `mask` in one byte of a file, durably and behind the engine's back; false if there is no such
    /// byte.
    pub fn flip(&self, name: &str, position: usize, mask: u8) -> bool {
        let mut state = self.state.lock();
        let Some(&file) = state.names.get(name) else { return false };
        let Some(byte) = state.files[file].get_mut(position) else { return false };
        *byte ^= mask;
        let data = vec![*byte];
        state.history.push(Change::Write { file, position, data, durable: true });
        true
    }

    /// Cuts a file off, behind the engine's back. Crash images do not know of it.
    pub fn truncate(&self, name: &str, bytes: usize) {
        let mut state = self.state.lock();
        if let Some(&file) = state.names.get(name) {
            state.files[file].truncate(bytes);
        }
    }

    /// Lets somebody cut a mapped file to this length right before its pages are made ready the next time. Crash images
    /// do not know of it.
    pub fn cut_at_ready(&self, bytes: usize) {
        self.state.lock().cut_at_ready = Some(bytes);
    }

    /// Whether that is still to come.
    pub fn will_cut(&self) -> bool {
        self.state.lock().cut_at_ready.is_some()
    }

    /// The contents of all files, by name.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        state.names.iter().map(|(name, &file)| (name.clone(), state.files[file].clone())).collect()
    }

    /// Makes a disk with these files, all durable.
    pub fn from_contents(tail_kind: TailKind, contents: &BTreeMap<String, Vec<u8>>) -> Self {
        Self::holding(tail_kind, contents.clone())
    }

    /// The changes that were made so far, in order.
    pub(super) fn history(&self) -> Vec<Change> {
        self.state.lock().history.clone()
    }

    fn file(&self, file: usize, kind: FileKind, state: &State) -> Arc<SimulatedFile> {
        let is_mapped = kind == FileKind::Mapped && self.maps();
        Arc::new(SimulatedFile {
            file,
            kind,
            mapped_bytes: is_mapped.then_some(state.files[file].len()),
            state: Arc::clone(&self.state),
            stall: Arc::clone(&self.stall),
            read_stall: Arc::clone(&self.read_stall),
        })
    }

    pub(super) fn holding(tail_kind: TailKind, contents: BTreeMap<String, Vec<u8>>) -> Self {
        let disk = Self::new(tail_kind);
        let mut state = disk.state.lock();
        for (name, bytes) in contents {
            let file = state.files.len();
            state.files.push(bytes.clone());
            state.names.insert(name.clone(), file);
            state.history.push(Change::Given { name, file, bytes: Arc::new(bytes) });
        }
        drop(state);
        disk
    }
}

/// Fails a call as the fault says; true if the call works, but should write short.
fn fail(fault: Option<Fault>) -> io::Result<bool> {
    let errno = match fault {
        None => return Ok(false),
        Some(Fault::ShortWrite) => return Ok(true),
        Some(Fault::Eio) => libc::EIO,
        Some(Fault::Enospc) => libc::ENOSPC,
        Some(Fault::Eintr) => libc::EINTR,
    };
    Err(io::Error::from_raw_os_error(errno))
}

impl State {
    /// Counts a call that changes something, and fails it if that was asked for; true if it should write short.
    fn count_call(&mut self) -> io::Result<bool> {
        let call = self.calls;
        self.calls += 1;
        let broken = self.broken_from.filter(|(from, _)| call >= *from).map(|(_, fault)| fault);
        fail(self.faults.get(&call).copied().or(broken))
    }

    /// Counts a call that only reads, and fails it if that was asked for.
    fn count_read(&mut self) -> io::Result<()> {
        let read = self.reads;
        self.reads += 1;
        fail(self.read_faults.get(&read).copied()).map(drop)
    }

    /// Fails with ENOSPC if the disk is full.
    fn check_room(&self) -> io::Result<()> {
        if self.full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn write(&mut self, file: usize, position: u64, data: Vec<u8>, durable: bool) {
        let position = position as usize;
        let bytes = &mut self.files[file];
        if bytes.len() < position + data.len() {
            bytes.resize(position + data.len(), 0);
        }
        bytes[position..position + data.len()].copy_from_slice(&data);
        self.syncs += u64::from(durable);
        self.history.push(Change::Write { file, position, data, durable });
    }
}

impl Disk for SimulatedDisk {
    fn maps(&self) -> bool {
        self.tail_kind == TailKind::Mapped
    }

    fn backend(&self) -> BackendInUse {
        BackendInUse { name: "simulated", refused: None, synced_writes: SyncedWrites::Direct }
    }

    fn boot(&self) -> Option<Uuid> {
        Some(self.boot)
    }

    fn path(&self, name: &str) -> String {
        format!("simulated/{name}")
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Unlock(Arc::clone(&self.state))))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.count_read()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn size_bytes(&self, name: &str) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.count_read()?;
        let &file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.files[file].len() as u64)
    }

    fn create(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.count_call()?;
        state.check_room()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (name, file, bytes) = (name.to_owned(), state.files.len(), bytes as usize);
        state.files.push(vec![0; bytes]);
        state.names.insert(name.clone(), file);
        state.history.push(Change::Create { name, file, bytes });
        Ok(self.file(file, kind, &state))
    }

    fn open(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.count_read()?;
        let &file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let bytes = bytes as usize;
        if state.files[file].len() < bytes {
            state.files[file].resize(bytes, 0);
            state.history.push(Change::Grow { file, bytes });
        }
        Ok(self.file(file, kind, &state))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count_call()?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        state.history.push(Change::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count_call()?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.history.push(Change::Remove { name: name.to_owned() });
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count_call()?;
        state.history.push(Change::SyncDirectory);
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(if self.state.lock().full { 0 } else { u64::MAX })
    }
}

struct Unlock(Arc<Mutex<State>>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.lock().locked = false;
    }
}

struct SimulatedFile {
    file: usize,
    kind: FileKind,
    /// Length that the file was mapped with; `None` if it is not mapped.
    mapped_bytes: Option<usize>,
    state: Arc<Mutex<State>>,
    stall: Arc<Stall>,
    read_stall: Arc<Stall>,
}

impl SimulatedFile {
    /// Fails as a real file does that is shorter than its mapping.
    fn check_length(&self, state: &State) -> io::Result<()> {
        let is_cut = self.mapped_bytes.is_some_and(|mapped| state.files[self.file].len() < mapped);
        if is_cut { Err(missing_page()) } else { Ok(()) }
    }
}

fn missing_page() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "somebody cut the file while it was mapped")
}

impl DiskFile for SimulatedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.count_read()?;
        Ok(state.files[self.file].len() as u64)
    }

    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.state.lock().count_read()?;
        self.read_stall.wait();
        let state = self.state.lock();
        let file = &state.files[self.file];
        let start = file.len().min(position as usize);
        let end = file.len().min(start + bytes);
        out.extend_from_slice(&file[start..end]);
        Ok(())
    }

    fn write(&self, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize> {
        let mut data = parts.concat();
        if durable {
            // A real disk would take it, and lose it again when the kernel writes the older page that the mapping has.
            assert!(self.kind != FileKind::Mapped, "a direct write into a mapped file");
            self.stall.wait();
        }
        let mut state = self.state.lock();
        self.check_length(&state)?;
        if state.count_call()? && data.len() > PAGE_BYTES as usize {
            data.truncate(data.len() / 2);
        }
        let count = data.len();
        state.write(self.file, position, data, durable);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        self.stall.wait();
        let mut state = self.state.lock();
        if let Err(error) = state.count_call() {
            state.history.push(Change::SyncFailed { file: self.file });
            return Err(error);
        }
        state.syncs += 1;
        state.history.push(Change::Sync { file: self.file });
        self.check_length(&state)
    }

    fn prepare(&self, range: Range<u64>, how: Prepare) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count_call()?;
        state.check_room()?;
        self.check_length(&state)?;
        if how == Prepare::Written {
            let zeros = vec![0; (range.end - range.start) as usize];
            state.write(self.file, range.start, zeros, false);
            state.history.push(Change::Sync { file: self.file });
        } else if state.files[self.file].len() < range.end as usize {
            let (file, bytes) = (self.file, range.end as usize);
            state.files[file].resize(bytes, 0);
            state.history.push(Change::Grow { file, bytes });
        }
        Ok(())
    }

    fn make_ready(&self, range: Range<u64>) {
        let mapped_bytes = self.mapped_bytes.expect("only mapped files have pages to make ready");
        assert!(range.end <= mapped_bytes as u64, "made ready outside of the mapping");
        let mut state = self.state.lock();
        if let Some(bytes) = state.cut_at_ready.take() {
            state.files[self.file].truncate(bytes);
        }
        if seeded!(ReadyBehindEnd) && state.files[self.file].len() < mapped_bytes {
            state.files[self.file].resize(mapped_bytes, 0);
        }
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count_call()?;
        self.check_length(&state)?;
        let zeros = vec![0; (range.end - range.start) as usize];
        state.write(self.file, range.start, zeros, false);
        Ok(())
    }

    fn data_ranges(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut state = self.state.lock();
        state.count_read()?;
        let file = &state.files[self.file];
        let end = range.end.min(file.len() as u64);
        let page = |start: u64| start..(start + PAGE_BYTES).min(end);
        let has_data =
            |page: &Range<u64>| file[page.start as usize..page.end as usize].iter().any(|&byte| byte != 0);
        Ok((range.start..end).step_by(PAGE_BYTES as usize).map(page).filter(has_data).collect())
    }

    fn claim(self: Arc<Self>, range: Range<u64>) -> Box<dyn MappedRange> {
        assert!(self.mapped_bytes.is_some(), "only mapped files have ranges to claim");
        Box::new(SimulatedClaim { file: self, range })
    }
}

struct SimulatedClaim {
    file: Arc<SimulatedFile>,
    range: Range<u64>,
}

impl MappedRange for SimulatedClaim {
    fn store(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(
            position + bytes.len() as u64 <= self.range.end - self.range.start,
            "store outside of the claim"
        );
        let mut state = self.file.state.lock();
        let position = self.range.start + position;
        if state.files[self.file.file].len() < position as usize + bytes.len() {
            return Err(missing_page());
        }
        state.write(self.file.file, position, bytes.to_vec(), false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::CrashChoice;

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let file = disk.create("a", 2048, FileKind::Plain).unwrap();
        disk.sync_directory().unwrap();
        file.write(0, &[&[1; 512]], true).unwrap();
        file.write(512, &[&[2; 1024]], false).unwrap();
        let unsynced = disk.changes();
        file.sync().unwrap();
        let bytes = |at, choice| disk.crash_image(at, choice).contents()["a"].clone();
        assert_eq!(bytes(unsynced, CrashChoice::Nothing)[..1024], [[1; 512], [0; 512]].concat());
        assert_eq!(bytes(unsynced, CrashChoice::Everything)[512..1536], [2; 1024]);
        assert_eq!(bytes(disk.changes(), CrashChoice::Nothing)[512..1536], [2; 1024]);
        let torn = (0..20).any(|seed| {
            let bytes = bytes(unsynced, CrashChoice::Some(seed));
            bytes[512] != bytes[1024]
        });
        assert!(torn);
        assert!(disk.crash_image(1, CrashChoice::Nothing).contents().is_empty());
    }

    #[test]
    fn the_named_call_fails_and_the_next_works() {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let file = disk.create("a", 8192, FileKind::Plain).unwrap();
        disk.fail_call(1, Fault::Eio);
        disk.fail_call(2, Fault::ShortWrite);
        assert!(file.write(0, &[&[1; 8192]], false).is_err());
        assert_eq!(file.write(0, &[&[1; 8192]], false).unwrap(), 4096);
        file.sync().unwrap();
        disk.set_full(true);
        assert!(disk.create("b", 1, FileKind::Plain).is_err());
    }
}
