//! The command `walrus-log`. Its test is alone in its program, since a process that is started holds the locks of the
//! other tests' stores for a moment.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use support::*;
use walrus_log::Options;

/// Makes a store with a log over several blocks, and a sealed one.
fn fill(directory: &Path) {
    let store = open(directory, &Options { blocks_per_file: 8, ..Options::small() });
    let logs = [store.create_log(spec(1, "orders")).unwrap(), store.create_log(spec(2, "done")).unwrap()];
    for i in 0..120 {
        append(&logs[0], &numbered(i, 1000)).unwrap();
    }
    append(&logs[1], b"last").unwrap();
    logs[1].seal(b"value").unwrap();
    store.drain();
    store.close().unwrap();
}

/// Runs the command, and returns its exit code and its output.
fn walrus_log(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_walrus-log")).args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn journal(directory: &Path) -> String {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("journal-")).max().unwrap()
}

#[test]
fn the_command_prints_a_table_or_json_and_ends_with_one_where_something_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert_eq!(walrus_log(&["inspect", path]).0, 2);
    assert_eq!(walrus_log(&["repair", path]).0, 2);
    assert_eq!(walrus_log(&["remove", path]).0, 2);
    fill(directory.path());
    let (code, table) = walrus_log(&["verify", path]);
    assert_eq!(code, 0);
    assert!(table.contains("orders") && table.contains("sealed  done"), "{table}");
    assert!(table.contains("121 batches"), "{table}");
    let file = directory.path().join("00000001.wal");
    let value = numbered(20, 1000);
    let at = fs::read(&file).unwrap().windows(1000).position(|window| window == value).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&file).unwrap();
    file.write_all_at(&[!value[0]], at as u64).unwrap();
    let (code, json) = walrus_log(&["verify", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, 1);
    assert_eq!(json["logs"][0]["damaged"], serde_json::json!([{"start": 20, "end": 21}]));
    assert_eq!(json["checked"]["batches"], 120);
    assert_eq!(walrus_log(&["inspect", path, "--json"]).0, 0);
    fs::remove_file(directory.path().join(journal(directory.path()))).unwrap();
    assert_eq!(walrus_log(&["inspect", path]).0, 2);
    // The damaged record stays told after the repair: a later commit proves that it was there.
    let (code, table) = walrus_log(&["repair", path]);
    assert_eq!(code, 1, "{table}");
    assert!(table.contains("the store has no journal") && table.contains("found by its blocks"), "{table}");
    let (code, json) = walrus_log(&["repair", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["journal"]), (0, &serde_json::Value::Null));
}
