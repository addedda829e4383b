//! With the feature `seeded-bugs`, `bugs`: what `make bugs` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        #[cfg(feature = "seeded-bugs")]
        ["bugs"] => bugs(None),
        #[cfg(feature = "seeded-bugs")]
        ["bugs", only] => bugs(Some(only)),
        _ => {
            eprintln!("usage: walrus-trials bugs [NAME] (feature seeded-bugs)");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "seeded-bugs")]
fn bugs(only: Option<&str>) -> ExitCode {
    let mut times = Vec::new();
    let all = walrus_trials::bugs::find_all(only, |found| {
        let seconds = found.elapsed.as_secs_f64();
        times.push(seconds);
        let said =
            found.by.as_ref().map_or("NOT FOUND".to_owned(), |(trial, said)| format!("{trial}: {said:.100}"));
        println!("{:24} {seconds:6.2} s  {said}", format!("{:?}", found.bug));
    });
    times.sort_by(f64::total_cmp);
    let Some(worst) = times.last() else { return ExitCode::FAILURE };
    let median = times[times.len() / 2];
    println!("bugs: {} mistakes, median {median:.2} s, at most {worst:.2} s", times.len());
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
