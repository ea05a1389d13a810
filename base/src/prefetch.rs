//! Asking the processor for memory before it is needed, so that the misses of independent accesses overlap.

/// Asks the processor for the cache line at `place`, which may be any address. A hint: nothing is read, and nothing faults.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
