//! Drops the privileges that a watch no longer needs once its programs are attached. It keeps those for attaching and
//! detaching in windows (CAP_BPF, CAP_PERFMON) and for finding a restarted server among other users' processes
//! (CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH). Probes in functions (a pack) also need CAP_SYS_ADMIN, and a recording in
//! another user's folder needs CAP_DAC_OVERRIDE. All others are dropped for good.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub fn drop_all_but_bpf(probes_functions: bool, out: Option<&Path>) -> std::io::Result<()> {
    let mut kept =
        CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    kept.set(CapabilitySet::SYS_ADMIN, probes_functions);
    let own = rustix::process::geteuid().as_raw();
    let is_anothers = |folder: &Path| folder.metadata().is_ok_and(|folder| folder.uid() != own);
    kept.set(CapabilitySet::DAC_OVERRIDE, out.is_some_and(is_anothers));
    let permitted = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?)
}
