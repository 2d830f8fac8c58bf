//! Profiles of a run directory. No stacks, however damaged, may make an export panic.

#![no_main]

use record::profile::{Profile, Stacks};
use report::export::{ExportFormat, StackRecording};
use straingauge_fuzz::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(stacks) = serde_json::from_slice::<Stacks>(bytes) else { return };
    let profile = Profile { stacks, ..Profile::default() };
    let Ok(recording) = StackRecording::of_profile(&profile) else { return };
    for format in ExportFormat::ALL {
        let exported = recording.export(format);
        // A recording without the account of threads has nothing for these two.
        let has_account = !matches!(format, ExportFormat::FoldedWaits | ExportFormat::FoldedWaitsChange);
        assert!(exported.map_or(!has_account, |bytes| !bytes.is_empty()), "{format:?}");
    }
});
