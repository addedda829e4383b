//! `cargo run -p walrus-rooms`: the figures of the rooms. `… -- check` fails where something breaks the
//! rules and says what to do, `… -- arrows` who knows whom by which names, `… -- drawing` the drawings for
//! `docs/internals/architecture.md`.

use std::process::ExitCode;

use walrus_rooms::{Crates, drawing, summary};

fn main() -> ExitCode {
    match report(std::env::args().nth(1).as_deref()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn report(what: Option<&str>) -> Result<String, String> {
    let crates = Crates::read()?;
    match what {
        None => crates.each().map(|(layout, knowledge)| summary(layout, knowledge)).collect(),
        Some("drawing") => crates.each().map(|(layout, knowledge)| drawing(layout, knowledge)).collect(),
        Some("check") => {
            let report = crates.report()?;
            if report.is_empty() { Ok(report) } else { Err(report) }
        }
        Some("arrows") => {
            let arrows = crates.each().flat_map(|(layout, knowledge)| {
                knowledge.arrows.iter().map(|((from, to), names)| {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    format!("{}: {from} knows {to}: {}\n", layout.name, names.join(", "))
                })
            });
            Ok(arrows.collect())
        }
        Some(other) => {
            Err(format!("There is no report {other:?}: ask for check, arrows or drawing, or for nothing."))
        }
    }
}
