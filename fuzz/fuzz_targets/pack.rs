//! Packs. No text may make their reader panic; each refusal is one sentence of limited length with the line.

#![no_main]

use observe::watch::pack::Pack;
use straingauge_fuzz::fuzz_target;

fuzz_target!(|text: &str| {
    match Pack::parse("pack", text) {
        Ok(pack) => assert!(!pack.server.is_empty() && !pack.binaries.is_empty() && pack.marks.len() >= 3),
        Err(why) => {
            let said = why.to_string();
            assert!(said.len() < 1000 && !said.contains(['\n', '\x1b']), "{said}");
        }
    }
});
