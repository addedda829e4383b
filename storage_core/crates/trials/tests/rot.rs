//! Damaged bytes are detected, fenced with exact offsets, and never served.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::time::Instant;

use walrus_log::TailKind;
use walrus_trials::rot::{larger, small};
use walrus_trials::{effort, say};

/// Damages of each larger store.
const DAMAGES: u64 = 1000;
/// Copies of each larger store, each with so many flipped bits: 100,000 in all.
const FLIPPED: u64 = 1000;
const FLIPS: usize = 50;

fn flip(part: u64) {
    let began = Instant::now();
    let (tried, mattered) = small(TailKind::Buffered).flip_every_byte(part, 2);
    let seconds = began.elapsed().as_secs_f64();
    say(&format!(
        "a flipped bit in each byte: {tried} tried, {mattered} in what is stored, in {seconds:.1} s"
    ));
    assert!(tried > 10_000 && mattered > 3_000, "{tried} {mattered}");
}

#[test]
fn a_flipped_bit_in_any_even_byte_is_fenced_or_refused() {
    flip(0);
}

#[test]
fn a_flipped_bit_in_any_odd_byte_is_fenced_or_refused() {
    flip(1);
}

fn damage(tail_kind: TailKind, seeds: u64) {
    let (began, subject, tried) = (Instant::now(), larger(tail_kind), effort(DAMAGES));
    let mattered = (seeds..seeds + tried).filter(|seed| subject.damage(*seed)).count();
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("random damage: {tried} tried, {mattered} in what is stored, in {seconds:.1} s"));
    assert!(mattered as u64 > tried / 4, "{mattered}");
}

#[test]
fn random_damage_of_a_mapped_store_is_fenced_or_refused() {
    damage(TailKind::Mapped, 0);
}

#[test]
fn random_damage_of_a_buffered_store_is_fenced_or_refused() {
    damage(TailKind::Buffered, 1 << 32);
}

fn flip_many(tail_kind: TailKind, seeds: u64) {
    let (began, subject, tried) = (Instant::now(), larger(tail_kind), effort(FLIPPED));
    let mattered = (seeds..seeds + tried).filter(|seed| subject.flip_many(*seed, FLIPS)).count();
    let (seconds, flips) = (began.elapsed().as_secs_f64(), tried * FLIPS as u64);
    say(&format!("random flips: {flips} in {tried} stores, {mattered} of them damaged, in {seconds:.1} s"));
    assert_eq!(mattered as u64, tried);
}

#[test]
fn many_random_flips_in_a_mapped_store_are_fenced() {
    flip_many(TailKind::Mapped, 0);
}

#[test]
fn many_random_flips_in_a_buffered_store_are_fenced() {
    flip_many(TailKind::Buffered, 1 << 32);
}
