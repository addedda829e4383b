//! A trial on a real disk that a stranger fills to its last byte while a store is open: calls that free space, end something
//! or close go on, the process is killed, and the store opens. Where even its reserve is gone it opens for reading only,
//! gives all that was acknowledged, changes nothing, and goes on once there is space.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Backend, Error, Log, Offset, Options, Store, verify};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::mounts::{Mounted, image_directory, make_ext4};
use crate::power::open;
use crate::random::{Random, Value};

const DISK_BYTES: u64 = 32 << 20;
/// Lives, each of which is killed on a full disk, where the next one begins.
const LIVES: u64 = 3;
/// The log that all lives append to and trim.
const KEPT: u64 = 1;
/// Logs at the start: a life seals one, and deletes one.
const LOGS: u64 = KEPT + 2 * LIVES;
/// Records that are appended to each log while there is space.
const RECORDS: u64 = 40;
/// Records that a life leaves in the log that it trims.
const LEFT: u64 = 20;
/// Limit on the moves of a cursor: more than any journal has room for.
const MOVES_MAX: u64 = 50_000;
const BALLAST: &str = "ballast";
const PROPERTY: &str = "life";
/// The last line of a life.
const DONE: &str = "done";

/// The kind of file system that is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// A tmpfs, in memory.
    Tmpfs,
    /// An ext4 over a loop device.
    Ext4,
}

fn options() -> Options {
    Options { block_bytes: 256 << 10, blocks_per_file: 8, ..Options::small() }
}

/// One life: a process that fills its disk, is refused, gives back what it can, and is killed by whoever started it. It says
/// each thing that it was promised in a line.
pub fn live(backend: Backend, life: u64, directory: &Path) -> io::Result<()> {
    let mut say = io::stdout();
    let disk = directory.parent().expect("it lies on a disk");
    let store = open(directory, options(), backend).map_err(io::Error::other)?;
    assert!(!store.is_read_only(), "what a life leaves is enough to open");
    let (sealed, deleted) = (2 * life, 2 * life + 1);
    let log = |id: u64| store.log(log_id(id)).expect("the log");
    let mut random = Random(life);
    if life == 1 {
        for id in KEPT..=LOGS {
            let log = store.create_log(new_log(log_id(id), format!("log {id}"))).map_err(io::Error::other)?;
            for _ in 0..RECORDS {
                append(&log, id, &mut random)?.expect("an empty disk");
            }
        }
    }
    fill_behind(&store, disk)?;
    for id in [KEPT, sealed] {
        let log = log(id);
        let refused = loop {
            if let Err(refused) = append(&log, id, &mut random)? {
                break refused;
            }
        };
        let is_clear = refused.to_string().contains("free some space and try again");
        assert!(matches!(refused, Error::NoSpace { .. }) && is_clear, "a full disk is told as {refused}");
    }
    // Moves of the cursor take the journal's room up to the part that is kept for calls that free space.
    let cursor = log(KEPT).cursor("c").map_err(io::Error::other)?;
    let (start, end) = (log(KEPT).start_offset().0, log(KEPT).end_offset().0);
    let refused = (0..MOVES_MAX).find_map(|i| cursor.seek(Offset(start + i % (end - start))).err());
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "moves of a cursor: {refused:?}");
    let refused = store.create_log(new_log(log_id(LOGS + life), "one more".to_owned()));
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "a new log: {:?}", refused.map(|log| log.id()));
    let started = log(KEPT).end_offset().0 - LEFT;
    // The log is trimmed record by record, and each time the stranger takes what came back.
    for start in log(KEPT).start_offset().0..started {
        log(KEPT).delete_before(Offset(start + 1)).map_err(io::Error::other)?;
        fill_behind(&store, disk)?;
    }
    writeln!(say, "started {KEPT} {started}")?;
    log(sealed).seal(b"value").map_err(io::Error::other)?;
    writeln!(say, "sealed {sealed}")?;
    store.delete_log(log_id(deleted)).map_err(io::Error::other)?;
    writeln!(say, "deleted {deleted}")?;
    fill_behind(&store, disk)?;
    store.put_property(PROPERTY, &life.to_le_bytes()).map_err(io::Error::other)?;
    writeln!(say, "lived {life}")?;
    if life == LIVES {
        // The last one closes, and is killed once the store is open again.
        store.close().map_err(io::Error::other)?;
        fill(disk)?;
        let store = open(directory, options(), backend).map_err(io::Error::other)?;
        assert!(!store.is_read_only(), "a store that was closed on a full disk opens");
        fill_behind(&store, disk)?;
        return park(&store);
    }
    park(&store)
}

/// Waits until somebody kills this process.
fn park(_store: &Store) -> io::Result<()> {
    println!("{DONE}");
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Appends a record, and prints it if it was acknowledged.
fn append(log: &Log, id: u64, random: &mut Random) -> io::Result<Result<(), Error>> {
    let value = Value { number: random.number(), bytes: 8 + random.below(9_000) as usize };
    let mut builder = BatchBuilder::new();
    builder.push(None, Some(&value.to_bytes()), 0, &[]);
    let mut bytes = Vec::new();
    builder.build(&mut bytes).expect("small");
    let (batch, _) = Batch::parse(&bytes).expect("just built");
    let appended = match log.append(&batch) {
        Ok(appended) => appended,
        Err(refused) => return Ok(Err(refused)),
    };
    appended.commit.wait().unwrap_or_else(|error| panic!("accepted, and then: {error}"));
    let Value { number, bytes } = value;
    writeln!(io::stdout(), "appended {id} {} {number} {bytes}", appended.base_offset)?;
    Ok(Ok(()))
}

/// The promises that were made to the lives.
#[derive(Default)]
struct Promised {
    logs: BTreeMap<u64, Promises>,
    lived: u64,
}

/// The promises that were made to the lives about one log.
#[derive(Default)]
struct Promises {
    values: BTreeMap<u64, Value>,
    start: u64,
    is_sealed: bool,
}

impl Promised {
    fn note(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').expect("a word and numbers");
        let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().expect("a number")).collect();
        match (what, numbers[..].as_ref()) {
            ("appended", [log, offset, number, bytes]) => {
                let value = Value { number: *number, bytes: *bytes as usize };
                self.logs.entry(*log).or_default().values.insert(*offset, value);
            }
            ("started", [log, start]) => {
                let promises = self.logs.get_mut(log).expect("a log");
                promises.start = *start;
                promises.values.retain(|offset, _| offset >= start);
            }
            ("sealed", [log]) => self.logs.get_mut(log).expect("a log").is_sealed = true,
            ("deleted", [log]) => drop(self.logs.remove(log)),
            ("lived", [life]) => self.lived = *life,
            _ => panic!("{line}"),
        }
    }

    /// Checks that all of it is there, and nothing else. Answers how many records there are.
    fn check(&self, store: &Store) -> u64 {
        assert_eq!(store.logs().len(), self.logs.len(), "logs");
        let property = store.property(PROPERTY).expect("a property");
        assert_eq!(property[..], self.lived.to_le_bytes());
        let mut all = 0;
        for (id, promises) in &self.logs {
            let log = store.log(log_id(*id)).unwrap_or_else(|| panic!("log {id} is gone"));
            assert_eq!(
                (log.start_offset().0, log.is_sealed()),
                (promises.start, promises.is_sealed),
                "log {id}"
            );
            let (records, fences) = read_from(&log, promises.start);
            assert_eq!(fences, [], "log {id}");
            assert_eq!(records.len(), promises.values.len(), "records of log {id}");
            for ((offset, bytes), (expected, value)) in records.iter().zip(&promises.values) {
                assert!(offset == expected && value.is(bytes), "log {id}, offset {offset}");
            }
            all += records.len() as u64;
        }
        all
    }
}

/// Lets processes fill a disk and die there, and opens what they leave. Answers how many records were acknowledged and read.
/// Needs a mount namespace of its own.
pub fn fill_and_kill(backend_name: &str, file_system: FileSystem) -> io::Result<u64> {
    let backend: Backend = backend_name.parse().map_err(io::Error::other)?;
    let work = image_directory()?;
    let at = work.path().join("disk");
    let mounted = match file_system {
        FileSystem::Tmpfs => Mounted::tmpfs(DISK_BYTES, &at)?,
        FileSystem::Ext4 => {
            let image = work.path().join("image");
            make_ext4(&image, DISK_BYTES)?;
            Mounted::ext4(&image, &at)?
        }
    };
    let directory = mounted.path().join("store");
    let mut promised = Promised::default();
    for life in 1..=LIVES {
        let mut child = start(backend_name, life, &directory)?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut is_done = false;
        for line in lines.map_while(Result::ok) {
            if line == DONE {
                is_done = true;
                child.kill()?;
            } else {
                promised.note(&line);
            }
        }
        child.wait()?;
        assert!(is_done, "life {life} ended by itself");
        fill(mounted.path())?;
    }
    take_reserve(&directory)?;
    fill(mounted.path())?;
    let left = contents(&directory)?;
    // It says the same however often it is opened.
    for _ in 0..2 {
        let store = Store::open(&directory, Options { backend, ..options() }).map_err(io::Error::other)?;
        assert!(store.is_read_only(), "not one byte is free");
        promised.check(&store);
        let log = store.log(log_id(KEPT)).expect("the log");
        let refusals = [
            append(&log, KEPT, &mut Random(0))?.err(),
            log.delete_before(log.end_offset()).err(),
            log.seal(b"value").err(),
            store.put_property(PROPERTY, b"").err(),
            store.delete_log(log_id(KEPT)).err(),
        ];
        for refused in refusals {
            assert!(matches!(refused, Some(Error::NoSpace { .. })), "a store that is only read: {refused:?}");
        }
        store.close().map_err(io::Error::other)?;
        drop(store);
        let now = contents(&directory)?;
        let names: BTreeSet<&String> = left.keys().chain(now.keys()).collect();
        let changed: Vec<_> = names.into_iter().filter(|name| left.get(*name) != now.get(*name)).collect();
        assert!(changed.is_empty(), "a store that is only read was changed: {changed:?}");
    }
    fs::remove_file(mounted.path().join(BALLAST))?;
    let store = open(&directory, options(), backend).map_err(io::Error::other)?;
    assert!(!store.is_read_only(), "there is space again");
    let records = promised.check(&store);
    let log = store.log(log_id(KEPT)).expect("the log");
    let end = log.end_offset().0;
    let goes_on =
        (0..RECORDS).try_for_each(|_| append(&log, KEPT, &mut Random(0))?.map_err(io::Error::other));
    goes_on.map_err(|error| io::Error::other(format!("a store that has space again: {error}")))?;
    store.close().map_err(io::Error::other)?;
    drop((log, store));
    let store = open(&directory, options(), backend).map_err(io::Error::other)?;
    let end_now = store.log(log_id(KEPT)).expect("the log").end_offset().0;
    assert_eq!(end_now, end + RECORDS, "the log goes on");
    store.close().map_err(io::Error::other)?;
    let verified = verify(&directory).map_err(io::Error::other)?;
    let damaged = verified.inspection.logs.iter().filter(|log| !log.damaged.is_empty()).count();
    assert_eq!(damaged, 0, "logs are damaged");
    Ok(records)
}

fn start(backend: &str, life: u64, directory: &Path) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["fills", backend, &life.to_string()])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Lets a stranger fill the disk once the store has given back what it can.
fn fill_behind(store: &Store, disk: &Path) -> io::Result<()> {
    store.drain();
    fill(disk)
}

/// Takes every byte of a disk that is free, as a stranger does.
fn fill(disk: &Path) -> io::Result<()> {
    let mut ballast = File::options().append(true).create(true).open(disk.join(BALLAST))?;
    loop {
        for step in [1 << 20, 64 << 10, 4 << 10] {
            loop {
                match ballast.write_all(&vec![0xff; step]).and_then(|()| ballast.sync_all()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        // What was freed just before comes back with a commit of the file system's journal.
        let said = Command::new("stat").args(["--file-system", "--format", "%a"]).arg(disk).output()?;
        if said.stdout.trim_ascii() == b"0" {
            return Ok(());
        }
    }
}

/// Takes the store's reserve, as a copy that writes no zeros leaves it out: the next journal's file, and the space ahead in
/// this one.
fn take_reserve(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join("journal.spare"))?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().expect("of a file").to_string_lossy().into_owned();
        if name.starts_with("journal-") {
            let bytes = fs::read(&path)?;
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            File::options().write(true).open(&path)?.set_len(written.next_multiple_of(4096) as u64)?;
        }
    }
    Ok(())
}

/// The bytes of all files.
fn contents(directory: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let files = fs::read_dir(directory)?.map(|entry| {
        let path = entry?.path();
        let name = path.file_name().expect("of a file").to_string_lossy().into_owned();
        Ok((name, fs::read(path)?))
    });
    files.collect()
}
