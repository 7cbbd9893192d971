//! How much memory this process has in use, to the byte. Growth shows here long before the operating system sees it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

#[global_allocator]
static COUNTING: Counting = Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static MINE: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

/// How many bytes are in use now.
pub(crate) fn bytes_in_use() -> isize {
    IN_USE.load(Ordering::SeqCst)
}

/// How often the calling thread has allocated.
pub(crate) fn allocations_of_this_thread() -> u64 {
    MINE.get()
}

fn count(bytes: usize) -> isize {
    isize::try_from(bytes).expect("no allocation is larger")
}

#[expect(unsafe_code, reason = "there is no safe way to see every allocation")]
// SAFETY: everything is the system's allocator's own; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MINE.set(MINE.get() + 1);
        IN_USE.fetch_add(count(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(count(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(count(size) - count(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
