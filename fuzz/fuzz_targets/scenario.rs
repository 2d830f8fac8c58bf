//! Scenario files. No text may make their reader panic. It is refused, or gives options whose numbers are in their
//! ranges.

#![no_main]

use straingauge_fuzz::fuzz_target;

fuzz_target!(|text: &str| straingauge::check_ranges(text));
