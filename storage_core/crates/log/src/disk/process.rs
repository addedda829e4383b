//! Forks, and how they are noticed. A child has a copy of a store's memory without its threads, and shares its files: whatever it
//! did there would be done behind the back of its parent. So a store belongs to the process that opened it, and a child
//! gives up the lock that it has inherited; otherwise the store would stay locked for as long as any child lives.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use super::calls;

/// Number of forks between the process that loaded the program and this one. It is written only by [`after_fork`], when
/// a child has one thread, so that relaxed loads see it.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that an object was made in.
#[derive(Clone, Copy, Debug)]
pub struct Origin(u32);

impl Origin {
    /// This process. Its forks by `fork(2)` of the C library are noticed from now on; `vfork` and `posix_spawn` do not
    /// count, since their children only start another program.
    pub fn here() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the functions are there for the life of the program; `after_fork` does nothing that a child of a
            // program with threads must not do.
            let failed =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(after_own_fork), Some(after_fork)) };
            assert_eq!(failed, 0, "there is memory for one more handler of forks");
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the caller runs in that process, and not in a child that was forked since.
    #[inline]
    pub fn is_here(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

/// The gate that is shut while the file of a lock is open and not yet in [`LOCKS`], and during every fork. So no child
/// has a descriptor that it does not know of, which would keep the file locked after its parent has let go.
static GATE: Gate = Gate(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// A mutex that one function locks and another one unlocks, in the child of a fork too.
struct Gate(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be shared by threads, and nothing but the two methods touches it.
unsafe impl Sync for Gate {}

impl Gate {
    fn shut(&self) {
        // SAFETY: the mutex is initialised, and a static is never moved.
        let failed = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(failed, 0, "no thread shuts it twice");
    }

    fn open(&self) {
        // SAFETY: the mutex is initialised, and a static is never moved. The thread that opens it has shut it, or is the
        // child's copy of that thread.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Runs in the thread that forks, before it does.
unsafe extern "C" fn before_fork() {
    GATE.shut();
}

/// Runs in the thread that forked, after the fork.
unsafe extern "C" fn after_own_fork() {
    GATE.open();
}

/// Runs in each child before its `fork` returns. Only calls that are safe in a signal handler are allowed here.
unsafe extern "C" fn after_fork() {
    GATE.open();
    FORKS.fetch_add(1, Ordering::Relaxed);
    let mut next = LOCKS.load(Ordering::Acquire);
    // SAFETY: slots are never freed, and their links never change once they are in the list.
    while let Some(slot) = unsafe { next.as_ref() } {
        let descriptor = slot.descriptor.swap(FREE, Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: the descriptor was the slot's alone, and the slot has let go of it.
            unsafe { libc::close(descriptor) };
        }
        next = slot.next;
    }
}

/// The descriptors of all locks that are held. The list only grows, since a child walks it as the fork found it, with
/// other threads of its parent anywhere in their work.
static LOCKS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

const FREE: RawFd = -1;

struct Slot {
    /// Descriptor that the slot owns; `FREE` if it owns none.
    descriptor: AtomicI32,
    next: *mut Slot,
}

/// An exclusive lock of a file, held until it is dropped or the process ends. A forked child does not hold it, and a
/// process that inherited a copy of the descriptor holds nothing once the lock is dropped.
pub(super) struct Lock {
    slot: &'static AtomicI32,
}

impl Lock {
    /// Locks the file that `open` opens; `open` must not fork. `WouldBlock` if somebody else holds the lock.
    pub(super) fn take(open: impl FnOnce() -> io::Result<File>) -> io::Result<Self> {
        // The handlers of forks must be there before the descriptor is.
        Origin::here();
        GATE.shut();
        let opened = open().map(|file| keep(file.into_raw_fd()));
        GATE.open();
        let lock = Self { slot: opened? };
        calls::lock(lock.slot.load(Ordering::Relaxed))?;
        Ok(lock)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let descriptor = self.slot.swap(FREE, Ordering::Release);
        if descriptor >= 0 {
            // A child that another thread spawned at this moment has a copy of the descriptor until it starts its program, and
            // a lock lives as long as its last copy: the file is unlocked, and not only closed.
            calls::unlock(descriptor);
            // SAFETY: the descriptor was the slot's alone, and the slot has let go of it.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

/// Puts a descriptor into a free slot, or into a new one.
fn keep(descriptor: RawFd) -> &'static AtomicI32 {
    let mut next = LOCKS.load(Ordering::Acquire);
    // SAFETY: slots are never freed, and their links never change once they are in the list.
    while let Some(slot) = unsafe { next.as_ref() } {
        if slot.descriptor.compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return &slot.descriptor;
        }
        next = slot.next;
    }
    let slot = Box::leak(Box::new(Slot { descriptor: AtomicI32::new(descriptor), next: ptr::null_mut() }));
    let mut head = LOCKS.load(Ordering::Acquire);
    loop {
        slot.next = head;
        match LOCKS.compare_exchange(head, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return &slot.descriptor,
            Err(other) => head = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A child that was forked at this moment once had a descriptor of the file that it did not know of: the store
    /// stayed locked for as long as the child lived, though its parent had died.
    #[test]
    fn a_child_that_is_forked_while_the_file_is_being_opened_does_not_keep_it_locked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let open = || File::create(&path);
        Origin::here();
        let (done, forked) = mpsc::channel();
        let lock = Lock::take(|| {
            let file = open()?;
            thread::spawn(move || done.send(fork_and_stay()).unwrap());
            // The fork waits until the file is known; one that does not wait is over long before.
            assert!(forked.recv_timeout(Duration::from_secs(1)).is_err(), "the fork does not wait");
            Ok(file)
        });
        let child = forked.recv().unwrap();
        // The parent's descriptor goes as that of a killed process does: it is closed, and never unlocked.
        let descriptor = lock.unwrap().slot.swap(FREE, Ordering::Relaxed);
        // SAFETY: the descriptor was the slot's alone, and the slot has let go of it.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let again = Lock::take(open);
        // SAFETY: the child is this test's, and is waited for once.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, ptr::null_mut(), 0);
        }
        assert!(again.is_ok(), "the child has no copy of the lock");
    }

    /// Another thread once spawned a program while a store was closed. The child has copies of all descriptors until it
    /// has started that program, and the store did not open again: it was "locked", by nobody.
    #[test]
    fn a_lock_that_is_let_go_is_free_though_a_copy_of_its_descriptor_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let lock = Lock::take(|| File::create(&path)).unwrap();
        // SAFETY: the descriptor is open, and its copy is this test's alone.
        let copy = unsafe { OwnedFd::from_raw_fd(libc::dup(lock.slot.load(Ordering::Relaxed))) };
        drop(lock);
        assert!(Lock::take(|| File::create(&path)).is_ok());
        drop(copy);
    }

    /// Forks a child that does nothing until it is killed, and waits until its handlers of the fork have run.
    fn fork_and_stay() -> libc::pid_t {
        let (mut reader, writer) = io::pipe().unwrap();
        // SAFETY: the child calls only what a signal handler may.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::write(writer.as_raw_fd(), [1_u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
            child
        };
        reader.read_exact(&mut [0]).unwrap();
        child
    }
}
