//! Values that are made where they stay.

/// Returns the value of `make` in a box. Large values, as futures of requests are, would be copied into it from the stack by
/// [`Box::new`].
#[inline(never)]
pub(super) fn boxed_in_place<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}
