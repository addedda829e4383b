//! fjall: an LSM tree whose journal is the log. A topic is a keyspace, keys are numbers.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use walrus_bench_sample::{Durability, System, Writer};

const CACHE_BYTES: u64 = 64 << 20;
/// So much that nothing is flushed into trees: the journal is what is measured.
const MEMTABLE_BYTES: u64 = 2 << 30;

/// A database with a keyspace for each topic.
pub struct Fjall {
    dir: PathBuf,
    database: Database,
    keyspaces: Vec<Keyspace>,
    syncs: bool,
}

impl Fjall {
    /// Each durable append persists the journal's data; without durability nothing is persisted but by the system.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(dir: &Path, durability: Durability, topics: usize) -> Result<Self> {
        let (database, keyspaces) = start(dir, topics)?;
        Ok(Self { dir: dir.to_owned(), database, keyspaces, syncs: durability == Durability::Each })
    }
}

fn start(dir: &Path, topics: usize) -> Result<(Database, Vec<Keyspace>)> {
    let database = Database::builder(dir)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(MEMTABLE_BYTES * 4)
        .manual_journal_persist(true)
        .open()?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    let keyspaces = (0..topics)
        .map(|topic| Ok(database.keyspace(&format!("topic-{topic}"), options)?))
        .collect::<Result<_>>()?;
    Ok((database, keyspaces))
}

struct KeyspaceWriter {
    database: Database,
    keyspace: Keyspace,
    next: u64,
    syncs: bool,
}

impl KeyspaceWriter {
    fn persist(&self) -> Result<()> {
        if self.syncs {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Writer for KeyspaceWriter {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.keyspace.insert(self.next.to_be_bytes(), record)?;
        self.next += 1;
        self.persist()
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        let mut batch = self.database.batch();
        for record in records {
            batch.insert(&self.keyspace, self.next.to_be_bytes(), *record);
            self.next += 1;
        }
        batch.commit()?;
        self.persist()
    }
}

impl System for Fjall {
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |keyspace: &Keyspace| KeyspaceWriter {
            database: self.database.clone(),
            keyspace: keyspace.clone(),
            next: 0,
            syncs: self.syncs,
        };
        Ok(self.keyspaces.iter().map(|keyspace| Box::new(writer(keyspace)) as Box<dyn Writer>).collect())
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { dir, database, keyspaces, .. } = *self;
        let topics = keyspaces.len();
        database.persist(PersistMode::SyncData)?;
        drop((database, keyspaces));
        let (_database, keyspaces) = start(&dir, topics)?;
        for (topic, keyspace) in keyspaces.iter().enumerate() {
            for item in keyspace.iter() {
                each(topic, &item.value()?)?;
            }
        }
        Ok(())
    }
}
