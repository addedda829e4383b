//! Stores into mappings whose file somebody else cuts. The kernel answers such a store with SIGBUS, which ends a process. A
//! handler puts a page of memory in the place of the one that is missing, so that the store goes on into nowhere, and notes
//! it: whoever stored gets an error. A store that a full disk has no page for ends the same way. Other faults go where they
//! went before. (Wayland's compositors guard the memory of their clients like this: `wl_shm_buffer_begin_access`.)
//!
//! A handler that the program sets later is in front of this one; what it does not pass on is not guarded.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Once, OnceLock};

/// A mapping of a file into which is stored, until it is dropped.
pub(super) struct Guard(&'static Slot);

/// All mappings that are guarded. A list that only grows, so that a handler may walk it whatever other threads do.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Addresses of a mapping. None lies in a slot that is free (`FREE..0`) or that changes (`CHANGING..`).
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    is_cut: AtomicBool,
    next: *mut Slot,
}

const FREE: usize = 0;
const CHANGING: usize = usize::MAX;

// SAFETY: `next` never changes once a slot is in the list, and slots are never freed.
unsafe impl Sync for Slot {}

impl Guard {
    /// Guards the mapping at these addresses, which must not be unmapped before the guard is dropped.
    pub(super) fn new(addresses: Range<usize>) -> io::Result<Self> {
        watch()?;
        let slot = free_slot();
        slot.is_cut.store(false, Ordering::Relaxed);
        slot.end.store(addresses.end, Ordering::Release);
        slot.start.store(addresses.start, Ordering::Release);
        Ok(Self(slot))
    }

    /// Asked behind a store by the thread that stored: an error if a page was missing, now or before. Those bytes are
    /// nowhere.
    #[inline]
    pub(super) fn check(&self) -> io::Result<()> {
        // The handler has run in this thread, as part of the store.
        compiler_fence(Ordering::SeqCst);
        if self.0.is_cut.load(Ordering::Relaxed) { Err(missing()) } else { Ok(()) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(CHANGING, Ordering::Release);
        self.0.end.store(FREE, Ordering::Release);
        self.0.start.store(FREE, Ordering::Release);
    }
}

/// The error of a file that is shorter than its mapping.
#[cold]
pub(super) fn missing() -> io::Error {
    let message = "somebody cut the file while it was open, or the disk has no page for it: what was stored is lost; \
                   open the store again to see what is left";
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

/// A slot that nobody else has, with a start of `CHANGING`.
fn free_slot() -> &'static Slot {
    let is_taken = |slot: &Slot| {
        slot.start.compare_exchange(FREE, CHANGING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(slot) = slots().find(|slot| is_taken(slot)) {
        return slot;
    }
    let slot = Box::leak(Box::new(Slot {
        start: AtomicUsize::new(CHANGING),
        end: AtomicUsize::new(FREE),
        is_cut: AtomicBool::new(false),
        next: ptr::null_mut(),
    }));
    let mut head = SLOTS.load(Ordering::Acquire);
    loop {
        slot.next = head;
        match SLOTS.compare_exchange(head, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return slot,
            Err(other) => head = other,
        }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: slots are never freed, and their links never change once they are in the list.
    let slot = |at: *mut Slot| unsafe { at.as_ref() };
    std::iter::successors(slot(SLOTS.load(Ordering::Acquire)), move |before| slot(before.next))
}

/// What handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets the handler, once in the life of the program.
fn watch() -> io::Result<()> {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: no memory is passed.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE_BYTES.store(usize::try_from(page).expect("pages have a size"), Ordering::Relaxed);
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the kernel fills the memory that is passed, which zeros fill as well.
        let before = unsafe {
            libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr());
            before.assume_init()
        };
        BEFORE.get_or_init(|| before);
        // SAFETY: zeros are an action without a mask; the handler has the form that its flags name, and is there for the
        // life of the program.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
    if PAGE_BYTES.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Runs in the thread that stored, in the middle of whatever it does: only system calls and atomics are allowed here.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes what happened; a fault has an address; the thread's own error number is always there.
    let (code, address, error) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    if code != libc::BUS_ADRERR || !put_page(address) {
        pass_on(signal, info, context);
    }
    // SAFETY: as above. Whoever was interrupted may be about to look at it.
    unsafe { *libc::__errno_location() = error };
}

/// Puts a page of memory where the file has none. False: the address is in no mapping that is guarded.
fn put_page(address: usize) -> bool {
    let is_inside = |slot: &&Slot| {
        (slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(slot) = slots().find(is_inside) else { return false };
    let bytes = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the page lies in a mapping that lives as long as its guard, and only its guard's owner stores there; nobody makes
    // references into it. It goes with the mapping when that is unmapped.
    let page = unsafe {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        libc::mmap((address - address % bytes) as *mut libc::c_void, bytes, access, kind, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    slot.is_cut.store(true, Ordering::Relaxed);
    true
}

/// Gives a fault that is not ours to whoever handled it before; by default the process ends.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().map_or((libc::SIG_DFL, 0), |action| (action.sa_sigaction, action.sa_flags));
    // SAFETY: what the program had set is a function of the form that its flags name.
    unsafe {
        match before {
            (libc::SIG_DFL | libc::SIG_IGN, _) => {
                libc::signal(signal, libc::SIG_DFL);
                // It comes when this handler returns.
                libc::raise(signal);
            }
            (handler, flags) if flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            (handler, _) => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
