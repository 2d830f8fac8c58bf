//! Profiles of a run directory. No stacks, however damaged, may make an export panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::profile::{Profile, Stacks};
use report::export::{Format, Recording};

fuzz_target!(|bytes: &[u8]| {
    let Ok(stacks) = serde_json::from_slice::<Stacks>(bytes) else { return };
    let profile = Profile { stacks, ..Profile::default() };
    let Ok(recording) = Recording::of_profile(&profile) else { return };
    for format in Format::ALL {
        assert!(!recording.export(format).is_empty(), "{format:?}");
    }
});
