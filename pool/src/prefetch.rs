//! Asking the processor for memory before it is needed, so that the misses of independent accesses overlap.

/// Asks the processor for a cache line. A hint.
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
