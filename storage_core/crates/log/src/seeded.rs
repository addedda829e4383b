//! The macro with which the engine asks whether one of the mistakes of `bug.rs` is switched on.

/// Whether a mistake is switched on; a constant `false` without the feature.
macro_rules! seeded {
    ($bug:ident) => {{
        #[cfg(feature = "seeded-bugs")]
        let on = crate::bug::has(crate::bug::Bug::$bug);
        #[cfg(not(feature = "seeded-bugs"))]
        let on = false;
        on
    }};
}
pub(crate) use seeded;
