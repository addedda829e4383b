//! What lay behind a torn tail does not come back, whatever crashes next.

use std::time::Instant;

use walrus_trials::tails::tear;
use walrus_trials::{effort, say};

#[test]
fn what_lay_behind_a_torn_tail_does_not_come_back() {
    let began = Instant::now();
    let images: u64 = (0..effort(150)).map(tear).sum();
    say(&format!("torn tails, torn again: {images} images in {:.1} s", began.elapsed().as_secs_f64()));
    assert!(images >= 5_000);
}
