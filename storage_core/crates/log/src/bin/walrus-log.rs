//! The command `walrus-log inspect|verify|repair <directory> [--json]`, which shows or repairs a store that nobody has
//! open. `inspect` and `verify` change nothing. It ends with 1 if something cannot be read, or if an open would cut or
//! move aside records that may have been promised; and with 2 if the store cannot be opened at all.

use std::process::ExitCode;

use walrus_log::{Result, inspect, repair, verify};

const USAGE: &str = "usage: walrus-log inspect|verify|repair <directory> [--json]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let as_json = match flags[..] {
        [] => false,
        ["--json"] => true,
        _ => return usage(),
    };
    let [command @ ("inspect" | "verify" | "repair"), directory] = words[..] else { return usage() };
    match run(command, directory, as_json) {
        Ok((text, is_damaged)) => {
            print!("{text}");
            ExitCode::from(u8::from(is_damaged))
        }
        Err(error) => {
            eprintln!("walrus-log: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command, and returns the text to print and whether something is lost. After a repair something is lost if it
/// cannot be read even now, or if the journal that promised it had to be made again.
fn run(command: &str, directory: &str, as_json: bool) -> Result<(String, bool)> {
    let (table, json, is_damaged) = match command {
        "inspect" => {
            let seen = inspect(directory)?;
            (seen.to_table(), seen.to_json(), seen.lost_something())
        }
        "verify" => {
            let seen = verify(directory)?;
            (seen.to_table(), seen.to_json(), seen.inspection.lost_something())
        }
        _ => {
            let done = repair(directory)?;
            (done.to_table(), done.to_json(), done.lost_something())
        }
    };
    Ok((if as_json { format!("{json:#}\n") } else { table }, is_damaged))
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
