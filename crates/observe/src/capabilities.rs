//! What this machine can and cannot measure, for `straingauge doctor`.

/// One thing that a measurement may need.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Capability {
    /// Short name.
    pub name: String,
    /// Whether it is there.
    pub is_available: bool,
    /// What was found.
    pub detail: String,
    /// What to do where it is not; empty where it is.
    pub remedy: String,
}

/// Everything that is looked at, in the order of a report.
pub fn capabilities() -> Vec<Capability> {
    Vec::new()
}
