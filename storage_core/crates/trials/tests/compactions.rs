//! A power failure in a compaction, or when its blocks are used again, takes no last record of a key.

use std::time::Instant;

use walrus_trials::compactions::compact;
use walrus_trials::{effort, say};

#[test]
fn the_last_record_of_each_key_survives_a_power_failure_in_a_compaction() {
    let began = Instant::now();
    let images: u64 = (0..effort(60)).map(compact).sum();
    say(&format!("compactions: {images} images in {:.1} s", began.elapsed().as_secs_f64()));
    assert!(images >= 4_000);
}
