use super::{Found, found};
use crate::proc_text::parse_thread_account;
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use std::fs;

pub fn thread_accounts() -> Found {
    let account = fs::read("/proc/thread-self/schedstat").ok().and_then(|text| parse_thread_account(&text));
    let why = match account {
        Some(account) if account.run_ns > 0 => {
            return Ok("schedstat has run time and run-queue wait in nanoseconds".into());
        }
        Some(_) => "schedstat reads as zero",
        None => "no /proc/PID/schedstat",
    };
    Err((
        why.into(),
        "run-queue wait, context switches and the busiest thread are not measured: use a kernel with CONFIG_SCHED_INFO",
    ))
}

pub fn foreign_processes() -> Found {
    if fs::metadata("/proc/1/stat").is_err() {
        return Err((
            "hidden (/proc is mounted with hidepid)".into(),
            "only this user's processes are watched and other work is underestimated: run straingauge as root",
        ));
    }
    let has_descriptors = fs::read_dir("/proc/1/fd").is_ok();
    found(
        has_descriptors,
        if has_descriptors { "visible, with their descriptors" } else { "visible, but not their descriptors" }.into(),
        "a server of another user is not found by its port: run straingauge as root or as that user, or let \
         straingauge start the server",
    )
}

pub fn control_groups() -> Found {
    let mount = record::machine::cgroup_mount(None).ok_or_else(|| "cgroup2 is not mounted".to_string());
    let writable = mount.and_then(|path| {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
            .map_err(|error| format!("cgroup2 is mounted, but: {error}"))
    });
    writable.map(|()| "cgroup2 is mounted and writable".into()).map_err(|why| {
        (
            why,
            "short-lived processes of the server are missed, and daemons are found by namespace only: mount cgroup2 \
             and run straingauge as root",
        )
    })
}

pub fn btf() -> Found {
    let there = fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false);
    found(
        there,
        if there { "the kernel describes its own types" } else { "no /sys/kernel/btf/vmlinux" }.into(),
        "BPF programs cannot follow the kernel's structures: use a kernel with CONFIG_DEBUG_INFO_BTF",
    )
}

/// Creates the smallest BPF map: an array of one word.
pub fn bpf() -> Found {
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
    let map = MapHandle::create(MapType::Array, None::<&str>, 4, 4, 1, &options);
    map.map(|_| "maps can be made".into()).map_err(|error| {
        (
            format!("refused: {error}"),
            "request phases, layers and what a server's threads wait for are not measured: run straingauge as root (or \
             with CAP_BPF and CAP_PERFMON), outside of a container that forbids bpf()",
        )
    })
}

pub fn requests() -> Found {
    let hooks = crate::watch::try_out().map(|hooks| hooks.replace('\n', " "));
    hooks.map_err(|why| {
        (
            why.to_string(),
            "'watch' shows connection states by scanning, accept queues, CPU and memory only: fix the items named here",
        )
    })
}

pub fn sampling() -> Found {
    crate::profile::sampler::StackSampler::try_out()
        .map(|()| "stacks can be sampled by the CPU clock".into())
        .map_err(|why| (why.to_string(), "the server's time cannot be divided by layer: fix the items named here"))
}

pub fn exact_layers() -> Found {
    match crate::profile::exact::why_not_possible() {
        None => Ok("fentry and fexit programs can be attached".into()),
        Some(why) => Err((
            why,
            "layers are sampled only ('profile --accounting exact' is not possible here): use a kernel with \
             CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS that does not lock hooks, as root",
        )),
    }
}
