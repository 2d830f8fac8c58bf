//! What a recording of `straingauge watch` says, as text and page.

pub mod page;
pub mod text;
