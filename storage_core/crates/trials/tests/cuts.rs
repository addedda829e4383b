//! A mapped file that somebody cuts costs no acknowledged record without a word.

use std::time::Instant;

use walrus_trials::cuts::cut;
use walrus_trials::{effort, say};

#[test]
fn a_mapped_file_that_was_cut_is_noticed_before_the_store_closes_in_order() {
    let began = Instant::now();
    let left: Vec<u64> = (0..effort(200)).map(cut).collect();
    let whole = left.iter().filter(|records| **records > 0).count();
    say(&format!("cut files: {whole} of {} whole in {:.1} s", left.len(), began.elapsed().as_secs_f64()));
    assert!(whole > 20 && left.len() - whole > 20);
}
