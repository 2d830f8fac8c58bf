use super::Capability;
use crate::proc_text::parse_thread_account;
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use std::fs;

pub fn thread_accounts() -> Capability {
    let account = fs::read("/proc/thread-self/schedstat").ok().and_then(|text| parse_thread_account(&text));
    Capability::new(
        "accounts of threads",
        account.is_some_and(|account| account.run_ns > 0),
        match account {
            Some(account) if account.run_ns > 0 => "schedstat has run time and run-queue wait in nanoseconds",
            Some(_) => "schedstat reads as zero",
            None => "no /proc/PID/schedstat",
        },
        "run-queue wait, context switches and the busiest thread are not measured: use a kernel with CONFIG_SCHED_INFO",
    )
}

pub fn foreign_processes() -> Capability {
    let name = "processes of other users";
    let can_see = fs::metadata("/proc/1/stat").is_ok();
    let can_look_into = fs::read_dir("/proc/1/fd").is_ok();
    match (can_see, can_look_into) {
        (true, true) => Capability::there(name, "visible, with their descriptors"),
        (true, false) => Capability::missing(
            name,
            "visible, but not their descriptors",
            "a server of another user is not found by its port: run straingauge as root or as that user, or let \
             straingauge start the server",
        ),
        _ => Capability::missing(
            name,
            "hidden (/proc is mounted with hidepid)",
            "only this user's processes are watched and other work is underestimated: run straingauge as root",
        ),
    }
}

pub fn control_groups() -> Capability {
    let name = "control group for the server";
    let remedy = "short-lived processes of the server are missed, and daemons are found by namespace only: mount \
                  cgroup2 and run straingauge as root";
    match record::machine::cgroup_mount(None) {
        None => Capability::missing(name, "cgroup2 is not mounted", remedy),
        Some(path) => match rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
            Ok(()) => Capability::there(name, "cgroup2 is mounted and writable"),
            Err(error) => Capability::missing(name, format!("cgroup2 is mounted, but: {error}"), remedy),
        },
    }
}

pub fn btf() -> Capability {
    let there = fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false);
    Capability::new(
        "BTF",
        there,
        if there { "the kernel describes its own types" } else { "no /sys/kernel/btf/vmlinux" },
        "BPF programs cannot follow the kernel's structures: use a kernel with CONFIG_DEBUG_INFO_BTF",
    )
}

/// Creates the smallest BPF map: an array of one word.
pub fn bpf() -> Capability {
    let name = "BPF";
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
    match MapHandle::create(MapType::Array, None::<&str>, 4, 4, 1, &options) {
        Ok(_) => Capability::there(name, "maps can be made"),
        Err(error) => Capability::missing(
            name,
            format!("refused: {error}"),
            "request phases, layers and what a server's threads wait for are not measured: run straingauge as root (or \
             with CAP_BPF and CAP_PERFMON), outside of a container that forbids bpf()",
        ),
    }
}

pub fn requests() -> Capability {
    let name = "requests of a server";
    match crate::watch::try_out() {
        Ok(hooks) => Capability::there(name, hooks.replace('\n', " ")),
        Err(why) => Capability::missing(
            name,
            why.to_string().replace('\n', " "),
            "'watch' shows connection states by scanning, accept queues, CPU and memory only: fix the items named here",
        ),
    }
}

pub fn sampling() -> Capability {
    let name = "sampling of the kernel";
    match crate::profile::try_out() {
        Ok(()) => Capability::there(name, "stacks can be sampled by the CPU clock"),
        Err(why) => Capability::missing(
            name,
            why.to_string().replace('\n', " "),
            "the server's time cannot be divided by layer: fix the items named here",
        ),
    }
}

pub fn exact_layers() -> Capability {
    let name = "hooks in kernel functions";
    match crate::profile::exact::why_not_possible() {
        None => Capability::there(name, "fentry and fexit programs can be attached"),
        Some(why) => Capability::missing(
            name,
            why,
            "layers are sampled only ('profile --accounting exact' is not possible here): use a kernel with \
             CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS that does not lock hooks, as root",
        ),
    }
}
