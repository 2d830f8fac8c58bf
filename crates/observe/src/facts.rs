use crate::group::WatchTarget;
use crate::limits::narrowest_memory;
use crate::listening::listening_addresses;
use crate::proc_text::parse_cgroup_path;
use crate::processes::{living_thread, read_stat};
use crate::wait_call::has_scalable_select;
use record::PlainText;
use record::machine::cgroup_mount;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Maximum characters of a fact, because a command line may have megabytes.
const MAX_FACT_CHARS: usize = 1000;

/// Reads the facts. The first of `members` has the lowest process id; it is usually the master.
pub fn read(target: &WatchTarget, members: &[u32], socket_method: Option<&str>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        if !value.trim().is_empty() {
            facts.insert(name.to_string(), PlainText::new(value.trim(), MAX_FACT_CHARS).into());
        }
    };
    if let Ok(addresses) = listening_addresses(target.port, target.netns_pid) {
        set("listens_on", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    set("sockets_read_by", socket_method.unwrap_or_default().into());
    set("cpus", target.server_cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let Some(&pid) = members.first() else { return facts };
    set("pid", pid.to_string());
    set("processes", members.len().to_string());
    if has_scalable_select(members) {
        set("scalable_select", "preloaded".into());
    }
    if let Some(stat) = read_stat(pid) {
        set("program", stat.command.into());
    }
    if let Ok(executable) = fs::read_link(format!("/proc/{}/exe", living_thread(pid))) {
        set("executable", executable.display().to_string());
    }
    if let Ok(arguments) = fs::read(format!("/proc/{}/cmdline", living_thread(pid))) {
        set("command", String::from_utf8_lossy(&arguments).replace('\0', " "));
    }
    if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_string();
        set("allowed_cpus", field("Cpus_allowed_list:"));
    }
    if let Ok(limits) = fs::read_to_string(format!("/proc/{pid}/limits")) {
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        set("descriptor_limit", limit.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().into());
    }
    if let Ok(namespace) = fs::read_link(format!("/proc/{}/ns/net", living_thread(pid))) {
        set("network_namespace", namespace.display().to_string());
    }
    if let Some(path) = fs::read(format!("/proc/{pid}/cgroup")).ok().and_then(|text| parse_cgroup_path(&text)) {
        set("cgroup", path);
    }
    if let Some((bytes, file)) = narrowest_memory(members) {
        set("memory_limit", bytes.to_string());
        set("memory_limit_file", file.display().to_string());
    }
    facts
}

/// A process's control group (v2), if it contains only the server: made by straingauge, or that of a systemd service,
/// and without this process.
pub fn own_cgroup_folder(pid: u32) -> Option<PathBuf> {
    let folder = cgroup_apart(pid)?;
    let name = folder.file_name()?.to_string_lossy();
    (name.starts_with("straingauge-") || name.ends_with(".service")).then_some(folder)
}

/// A process's control group (v2) if it does not contain this process.
pub fn cgroup_apart(pid: u32) -> Option<PathBuf> {
    let theirs = parse_cgroup_path(&fs::read(format!("/proc/{pid}/cgroup")).ok()?)?;
    let ours = parse_cgroup_path(&fs::read("/proc/self/cgroup").ok()?)?;
    let has_ours = ours == theirs || ours.starts_with(&format!("{}/", theirs.trim_end_matches('/')));
    (!has_ours).then_some(cgroup_mount(None)?.join(theirs.trim_start_matches('/')))
}
