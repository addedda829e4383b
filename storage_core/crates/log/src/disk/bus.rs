//! Stores into mappings whose file somebody else cuts. The kernel answers such a store with SIGBUS, which ends a
//! process. The handler in this module puts a page of memory in the place of the missing one, so that the store goes on
//! into nowhere, and notes it, so that the storing thread gets an error. A store that a full disk has no page for ends
//! the same way. Other faults go where they went before. (Wayland's compositors guard the memory of their clients like
//! this: `wl_shm_buffer_begin_access`.)
//!
//! A handler that the program sets later comes first; a fault that it does not pass on is not guarded against.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Once, OnceLock};

/// Guards the stores into a mapping of a file until it is dropped.
pub(super) struct Guard(&'static Slot);

/// All guarded mappings. The list only grows, so that the handler may walk it whatever other threads do.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Addresses of a mapping. No address lies in a slot that is free (`FREE..0`) or that changes (`CHANGING..`).
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Whether a store has met a missing page.
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

    /// Returns an error if a page was missing, now or before; the bytes that were stored there are nowhere. The thread
    /// that stored must call this, after the store.
    #[inline]
    pub(super) fn check(&self) -> io::Result<()> {
        // The handler has run in this thread, as part of the store.
        compiler_fence(Ordering::SeqCst);
        if self.0.is_cut.load(Ordering::Relaxed) { Err(missing_page()) } else { Ok(()) }
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
pub(super) fn missing_page() -> io::Error {
    let message = "somebody cut the file while it was open, or the disk has no page for it: what was stored is lost; \
                   open the store again to see what is left";
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

/// Takes a slot that nobody else has, with a start of `CHANGING`.
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

/// The action for the signal before this module set its own.
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
        // SAFETY: the kernel fills the memory that is passed; should the call fail, its zeros are a valid value.
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

/// Handles a SIGBUS. It runs in the thread that faulted, in the middle of whatever that does, so only system calls and
/// atomics are allowed here.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`, in which a fault has an address; the thread's own error number is always
    // there.
    let (code, address, error) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    if code != libc::BUS_ADRERR || !put_page(address) {
        pass_on(signal, info, context);
    }
    // SAFETY: the thread's own error number is always there. It is put back because the interrupted code may be about to
    // look at it.
    unsafe { *libc::__errno_location() = error };
}

/// Puts a page of memory at an address where the file has none; false if no guarded mapping has the address, or the
/// kernel gives no page.
fn put_page(address: usize) -> bool {
    let is_inside = |slot: &&Slot| {
        (slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(slot) = slots().find(is_inside) else { return false };
    let bytes = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the page lies in a mapping that outlives its guard, only the owner of the guard stores there, and nobody
    // makes references into it. The page goes with the mapping when that is unmapped.
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

/// Passes a fault in memory that is not guarded to the action that was set before; by default the process ends.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().map_or((libc::SIG_DFL, 0), |action| (action.sa_sigaction, action.sa_flags));
    // SAFETY: the action that the program had set is a function of the form that its flags name.
    unsafe {
        match before {
            (libc::SIG_DFL | libc::SIG_IGN, _) => {
                libc::signal(signal, libc::SIG_DFL);
                // The signal is blocked here, and ends the process when this handler returns.
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
