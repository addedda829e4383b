//! The ways to open a [`Walrus`]: a builder, and the constructors of the original Walrus. The original's environment
//! variables fill in what neither says.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{Walrus, namespace};
use crate::error::{Error, Result};
use crate::log::floor::Retention;
use crate::options::{Backend, Options, ReadConsistency};
use crate::store::Store;
use crate::types::FsyncSchedule;

const DATA_DIR: &str = "WALRUS_DATA_DIR";
const INSTANCE_KEY: &str = "WALRUS_INSTANCE_KEY";
const DISABLE_IO_URING: &str = "WALRUS_DISABLE_IO_URING";
const DATA_DIR_DEFAULT: &str = "wal_files";
const KEY_DEFAULT: &str = "default";

/// Builds a [`Walrus`]. A value that is not set comes from the environment, then from the defaults.
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
    /// Sets the directory of the store itself, so that neither namespace nor environment decides where it is.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the directory of all namespaces; by default `WALRUS_DATA_DIR`, else `wal_files`.
    #[must_use]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Sets the namespace, which has a directory of its own below; by default `WALRUS_INSTANCE_KEY`, else `default`.
    /// Different keys never share anything.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how often cursors are made durable.
    #[must_use]
    pub fn consistency(mut self, consistency: ReadConsistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// Sets when appends are synced.
    #[must_use]
    pub fn fsync_schedule(mut self, fsync: FsyncSchedule) -> Self {
        self.options.fsync = fsync;
        self
    }

    /// Sets how bytes get to the disk. If it stays `Auto`, `WALRUS_DISABLE_IO_URING` makes it `Mmap`.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.options.backend = backend;
        self
    }

    /// Sets all options of the store, those that were set before included.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets the retention of topics, unless [`Log::set_retention`](crate::Log::set_retention) sets another one.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Opens the store. Errors: those of [`Store::open`], and `InvalidName` for a key that is empty or too long.
    pub fn build(self) -> Result<Walrus> {
        let (directory, options) = self.place(|name| std::env::var_os(name))?;
        Walrus::with(Store::open(directory, options)?, self.consistency, self.retention)
    }

    /// Directory and options for a given environment.
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

/// The constructors of the original Walrus. Appends are durable when they return, unless a schedule says otherwise.
impl Walrus {
    /// Gives a builder with nothing set.
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

    /// Opens the directory that the environment names.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Opens the directory that the environment names, with cursors of that consistency.
    pub fn with_consistency(consistency: ReadConsistency) -> Result<Self> {
        Self::builder().consistency(consistency).build()
    }

    /// Opens the directory that the environment names, with cursors of that consistency and appends synced by that
    /// schedule.
    pub fn with_consistency_and_schedule(consistency: ReadConsistency, fsync: FsyncSchedule) -> Result<Self> {
        Self::builder().consistency(consistency).fsync_schedule(fsync).build()
    }

    /// Opens a namespace.
    pub fn new_for_key(key: &str) -> Result<Self> {
        Self::builder().key(key).build()
    }

    /// Opens a namespace, with cursors of that consistency.
    pub fn with_consistency_for_key(key: &str, consistency: ReadConsistency) -> Result<Self> {
        Self::builder().key(key).consistency(consistency).build()
    }

    /// Opens a namespace, with cursors of that consistency and appends synced by that schedule.
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
