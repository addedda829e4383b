//! The broker's locks, and the one order in which they nest: a thread that holds a lock takes only those behind it. Two
//! threads that keep to one order cannot wait for each other. A debug build, and with it every test, panics where the
//! order is broken, whether or not another thread happens to be there.
//!
//! Locks of tasks (`tokio::sync::Mutex`) are held over waits; they are taken before all of these.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whose turn it is to hand new metadata to the parts, which take all of theirs below.
pub(crate) const PUBLICATION: u8 = 0;
/// Batches that wait for their topic to be made; they are handed to sequencers.
pub(crate) const CREATION: u8 = 1;
/// A partition's queue of appends, which goes to its leader.
pub(crate) const SEQUENCER: u8 = 2;
/// A leader's way to one replica. What is sent on it, in what order, is decided under the lock of the leader.
pub(crate) const LINK: u8 = 3;
/// What a leader decides with; it writes to its own copy.
pub(crate) const LEADER: u8 = 4;
/// What a replica decides with; it writes to its log.
pub(crate) const COPY: u8 = 5;
/// The newest update of the leases, which goes to all logs that are held.
pub(crate) const LEASES: u8 = 6;
/// The logs that this process may write to.
pub(crate) const HELD: u8 = 7;
/// The peers by their nodes.
pub(crate) const PEERS: u8 = 8;
/// The calls of a connection, which go into its queue of bytes.
pub(crate) const CONNECTION: u8 = 9;
/// How many connections the front has; it lets spare descriptors go by that.
pub(crate) const FRONT: u8 = 10;
/// A lock under which no other one is taken. Most are.
pub(crate) const LEAF: u8 = u8::MAX;

/// A value that threads take turns with. `PLACE` is where the lock stands in the order.
#[derive(Debug, Default)]
pub(crate) struct Lock<T, const PLACE: u8 = LEAF>(Mutex<T>);

/// A value that threads read at a time and change in turns. `PLACE` is where the lock stands in the order.
#[derive(Debug, Default)]
pub(crate) struct SharedLock<T, const PLACE: u8 = LEAF>(RwLock<T>);

/// The turn of a thread with a value; it ends when this is dropped.
pub(crate) struct Turn<G> {
    guard: G,
    #[cfg(debug_assertions)]
    _held: order::Held,
}

impl<G> Turn<G> {
    #[inline]
    fn new<T, const PLACE: u8>(take: impl FnOnce() -> G) -> Self {
        #[cfg(debug_assertions)]
        let _held = order::take::<T>(PLACE);
        Self {
            guard: take(),
            #[cfg(debug_assertions)]
            _held,
        }
    }
}

impl<G: Deref> Deref for Turn<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Turn<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T, const PLACE: u8> Lock<T, PLACE> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the thread's turn.
    #[inline]
    pub(crate) fn lock(&self) -> Turn<MutexGuard<'_, T>> {
        Turn::new::<T, PLACE>(|| self.0.lock())
    }

    /// A turn, if no other thread has one. It may be out of order, since it does not wait.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Turn<MutexGuard<'_, T>>> {
        let guard = self.0.try_lock()?;
        Some(Turn {
            guard,
            #[cfg(debug_assertions)]
            _held: order::Held::new::<T>(PLACE),
        })
    }
}

impl<T, const PLACE: u8> SharedLock<T, PLACE> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Waits until no thread changes the value.
    #[inline]
    pub(crate) fn read(&self) -> Turn<RwLockReadGuard<'_, T>> {
        Turn::new::<T, PLACE>(|| self.0.read())
    }

    /// Waits until no thread reads or changes the value.
    #[inline]
    pub(crate) fn write(&self) -> Turn<RwLockWriteGuard<'_, T>> {
        Turn::new::<T, PLACE>(|| self.0.write())
    }
}

/// What this thread holds, in debug builds.
#[cfg(debug_assertions)]
mod order {
    use std::any::type_name;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(u8, &'static str)>> = const { RefCell::new(Vec::new()) };
    }

    /// A lock that this thread holds; dropped with the turn.
    pub(super) struct Held {
        place: u8,
        name: &'static str,
    }

    impl Held {
        pub(super) fn new<T>(place: u8) -> Self {
            let name = type_name::<T>();
            HELD.with_borrow_mut(|held| held.push((place, name)));
            Self { place, name }
        }
    }

    /// # Panics
    /// Where the thread holds a lock that stands behind this one, or beside it.
    pub(super) fn take<T>(place: u8) -> Held {
        HELD.with_borrow(|held| {
            if let Some((_, other)) = held.iter().find(|(held, _)| *held >= place) {
                let name = type_name::<T>();
                panic!("the lock of {name} is taken under that of {other}: see the order in locks.rs");
            }
        });
        Held::new::<T>(place)
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let at = held.iter().rposition(|other| *other == (self.place, self.name));
                held.remove(at.expect("a turn ends in the thread that began it"));
            });
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order_and_again_when_they_were_let_go() {
        let (leader, copy) = (Lock::<_, LEADER>::new(1), Lock::<_, COPY>::new(2));
        for _ in 0..2 {
            let (first, second) = (leader.lock(), copy.lock());
            assert_eq!(*first + *second, 3);
            drop(first); // not the newest
        }
    }

    #[test]
    #[should_panic(expected = "the lock of u8 is taken under that of u16")]
    fn a_lock_that_is_taken_out_of_order_is_a_panic_even_where_nobody_else_holds_it() {
        let (leader, copy) = (Lock::<u8, LEADER>::new(1), SharedLock::<u16, COPY>::new(2));
        let _held = copy.read();
        drop(leader.lock());
    }

    #[test]
    #[should_panic(expected = "is taken under that of")]
    fn two_locks_of_one_place_are_not_taken_together() {
        let (one, other) = (Lock::<_, COPY>::new(1), Lock::<_, COPY>::new(2));
        let _held = one.lock();
        drop(other.lock());
    }

    #[test]
    fn a_turn_without_waiting_may_be_out_of_order_and_counts_for_what_is_taken_under_it() {
        let (link, leader) = (Lock::<_, LINK>::new(1), Lock::<_, LEADER>::new(2));
        let held = leader.lock();
        assert_eq!(link.try_lock().map(|turn| *turn), Some(1));
        drop(held);
        let _turn = link.try_lock();
        assert_eq!(*leader.lock(), 2);
    }
}
