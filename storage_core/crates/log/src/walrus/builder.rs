//! How a [`Walrus`] is opened: by a builder, by the original's constructors, with the original's environment variables
//! for what neither says.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{Walrus, namespace};
use crate::error::{Error, Result};
use crate::log::floor::Retention;
use crate::options::{Backend, FsyncSchedule, Options, ReadConsistency};
use crate::store::Store;

const DATA_DIR: &str = "WALRUS_DATA_DIR";
const INSTANCE_KEY: &str = "WALRUS_INSTANCE_KEY";
const DISABLE_IO_URING: &str = "WALRUS_DISABLE_IO_URING";
const DATA_DIR_DEFAULT: &str = "wal_files";
const KEY_DEFAULT: &str = "default";

/// Says how a [`Walrus`] is opened. What is not said comes from the environment, then from the defaults.
#[derive(Clone, Debug, Default)]
pub struct WalrusBuilder {
    directory: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    key: Option<String>,
    consistency: ReadConsistency,
    options: Options,
    retention: Retention,
}

impl WalrusBuilder {
    /// The directory of the store itself: neither namespace nor environment say where it is.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Directory of all namespaces; else `WALRUS_DATA_DIR`, else `wal_files`.
    #[must_use]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// The namespace: a directory of its own below. Else `WALRUS_INSTANCE_KEY`, else `default`. Different keys never
    /// share anything.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// How often cursors are made durable.
    #[must_use]
    pub fn consistency(mut self, consistency: ReadConsistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// When appends are synced.
    #[must_use]
    pub fn fsync_schedule(mut self, fsync: FsyncSchedule) -> Self {
        self.options.fsync = fsync;
        self
    }

    /// How bytes get to the disk. Left at `Auto`, `WALRUS_DISABLE_IO_URING` makes it `Mmap`.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.options.backend = backend;
        self
    }

    /// All other options of the store, and those that were set so far.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// What topics forget by themselves, where [`Log::set_retention`](crate::Log::set_retention) says nothing else.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Opens it. Errors as [`Store::open`], and `InvalidName` for a key that is empty or too long.
    pub fn build(self) -> Result<Walrus> {
        let (directory, options) = self.place(|name| std::env::var_os(name))?;
        Walrus::with(Store::open(directory, options)?, self.consistency, self.retention)
    }

    /// Where and how, given an environment.
    fn place(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<(PathBuf, Options)> {
        let mut options = self.options.clone();
        if options.backend == Backend::Auto && variable(DISABLE_IO_URING).is_some() {
            options.backend = Backend::Mmap;
        }
        if let Some(directory) = &self.directory {
            return Ok((directory.clone(), options));
        }
        let data_dir = self.data_dir.clone().or_else(|| variable(DATA_DIR).map(PathBuf::from));
        let key = match (&self.key, variable(INSTANCE_KEY)) {
            (Some(key), _) => key.clone(),
            (None, Some(key)) => key.into_string().map_err(|key| Error::InvalidName {
                name: key.to_string_lossy().into_owned(),
                reason: "of WALRUS_INSTANCE_KEY is not UTF-8",
            })?,
            (None, None) => KEY_DEFAULT.to_owned(),
        };
        let data_dir = data_dir.unwrap_or_else(|| DATA_DIR_DEFAULT.into());
        Ok((data_dir.join(namespace::directory_name(&key)?), options))
    }
}

/// The original's constructors. Appends are durable when they return, where nothing else is said.
impl Walrus {
    /// Says step by step how to open.
    ///
    /// ```
    /// use walrus_log::{FsyncSchedule, ReadConsistency, Walrus};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let walrus = Walrus::builder()
    ///     .data_dir(directory.path())
    ///     .key("billing")
    ///     .consistency(ReadConsistency::AtLeastOnce { persist_every: 100 })
    ///     .fsync_schedule(FsyncSchedule::SyncEach)
    ///     .build()?;
    /// walrus.append_for_topic("invoices", b"1")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> WalrusBuilder {
        WalrusBuilder::default()
    }

    /// In the place that the environment says.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Cursors of that consistency.
    pub fn with_consistency(consistency: ReadConsistency) -> Result<Self> {
        Self::builder().consistency(consistency).build()
    }

    /// Cursors of that consistency, appends synced like this.
    pub fn with_consistency_and_schedule(consistency: ReadConsistency, fsync: FsyncSchedule) -> Result<Self> {
        Self::builder().consistency(consistency).fsync_schedule(fsync).build()
    }

    /// A namespace.
    pub fn new_for_key(key: &str) -> Result<Self> {
        Self::builder().key(key).build()
    }

    /// A namespace, with cursors of that consistency.
    pub fn with_consistency_for_key(key: &str, consistency: ReadConsistency) -> Result<Self> {
        Self::builder().key(key).consistency(consistency).build()
    }

    /// A namespace, with cursors of that consistency, appends synced like this.
    pub fn with_consistency_and_schedule_for_key(
        key: &str,
        consistency: ReadConsistency,
        fsync: FsyncSchedule,
    ) -> Result<Self> {
        Self::builder().key(key).consistency(consistency).fsync_schedule(fsync).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_before_the_environment_and_that_before_the_defaults() {
        let nothing = |_: &str| None;
        let all = |name: &str| Some(OsString::from(format!("env-{name}")));
        let place = |builder: WalrusBuilder, environment: &dyn Fn(&str) -> Option<OsString>| {
            let (path, options) = builder.place(environment).unwrap();
            (path.display().to_string(), options.backend)
        };
        assert_eq!(place(Walrus::builder(), &nothing), ("wal_files/default".to_owned(), Backend::Auto));
        let from_all = ("env-WALRUS_DATA_DIR/env-WALRUS_INSTANCE_KEY".to_owned(), Backend::Mmap);
        assert_eq!(place(Walrus::builder(), &all), from_all);
        let said = Walrus::builder().data_dir("d").key("a/b").backend(Backend::Direct);
        assert_eq!(place(said, &all), ("d/a%2Fb".to_owned(), Backend::Direct));
        let itself = Walrus::builder().directory("d").key("k");
        assert_eq!(place(itself, &all), ("d".to_owned(), Backend::Mmap));
        assert!(Walrus::builder().key("").place(nothing).is_err());
    }
}
