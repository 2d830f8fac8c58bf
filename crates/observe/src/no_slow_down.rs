//! Slow-downs in a program without BPF: there are none.

use record::SlowPlace;

/// Why a server cannot be slowed down: a sentence.
#[derive(Debug, thiserror::Error)]
pub enum SlowDownError {
    /// The program was built without BPF.
    #[error("this straingauge was built without BPF (--no-default-features)")]
    NotBuilt,
}

/// Spins at a place since it was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spun {
    /// How often the place was reached.
    pub count: u64,
    /// The time of the spins, nanoseconds.
    pub ns: u64,
}

/// Cannot be made.
#[derive(Debug)]
pub enum SlowDown {}

impl SlowDown {
    /// # Errors
    /// Always.
    pub fn attach(_: u16, _: Option<u32>, _: &[SlowPlace], _: Option<&str>) -> Result<Self, SlowDownError> {
        Err(SlowDownError::NotBuilt)
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn set(&mut self, _: Option<SlowPlace>, _: u64) -> Result<(), SlowDownError> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn spun(&self, _: SlowPlace) -> Result<Spun, SlowDownError> {
        match *self {}
    }
}
