//! Profiles of a run directory. No stacks, however damaged, may make an export panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::profile::{Profile, Stacks};
use report::export::{ExportFormat, StackRecording};

fuzz_target!(|bytes: &[u8]| {
    let Ok(stacks) = serde_json::from_slice::<Stacks>(bytes) else { return };
    let profile = Profile { stacks, ..Profile::default() };
    let Ok(recording) = StackRecording::of_profile(&profile) else { return };
    for format in ExportFormat::ALL {
        assert!(!recording.export(format).is_empty(), "{format:?}");
    }
});
