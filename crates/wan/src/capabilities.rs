//! The kernel features that can connect client and server, for `straingauge doctor`. Each is tried in a temporary
//! namespace.

use crate::error::{DuringStep, WanError};
use crate::namespace::NetNamespace;
use crate::rtnetlink::Route;
use record::PathPlan;
use record::machine::Capability;
use rustix::fd::AsFd;
use std::fs;
use std::io;

/// All checks, in the order of the report.
pub fn capabilities() -> Vec<Capability> {
    vec![
        probed(
            "network namespaces",
            |_, _| Ok(()),
            "client and server can be separated",
            "client and server share the machine's network stack and counters: use a kernel with CONFIG_NET_NS, \
             outside of a container without CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
        probed(
            "veth",
            |route, namespace| route.add_veth("one", "other", namespace.as_fd()),
            "client and server can have a separate link",
            "client and server cannot be separated: 'modprobe veth', or use a kernel with CONFIG_VETH",
        ),
        receive_steering(),
        probed(
            "netem",
            |route, _| route.add_netem("lo", &PathPlan::default(), 0),
            "delay, loss and rate can be emulated by the kernel",
            "delay and loss are emulated in user space, which costs more CPU time: 'modprobe sch_netem', or use a \
             kernel with CONFIG_NET_SCH_NETEM",
        ),
        tun(),
        probed(
            "fq",
            |route, _| route.add_fq("lo"),
            "TCP pacing is done by the queue",
            "pacing (also of BBR) falls back to timers in TCP: 'modprobe sch_fq', or use a kernel with \
             CONFIG_NET_SCH_FQ",
        ),
    ]
}

type Probe = fn(&Route, &NetNamespace) -> io::Result<()>;

fn probed(name: &str, probe: Probe, there: &str, remedy: &str) -> Capability {
    if !rustix::process::geteuid().is_root() {
        return Capability::missing(name, "not tried, because it needs root", "run straingauge doctor as root");
    }
    match tried(probe) {
        Ok(()) => Capability::there(name, there),
        Err(WanError::Step { source, .. } | WanError::Unsupported { source, .. }) => match source.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => Capability::missing(name, "this kernel has none", remedy),
            _ => Capability::missing(name, format!("refused: {source}"), remedy),
        },
        Err(error) => Capability::missing(name, error.to_string(), remedy),
    }
}

pub(crate) fn tried(probe: Probe) -> Result<(), WanError> {
    NetNamespace::create().and_then(|namespace| {
        namespace.run_inside(|| {
            let route = Route::connect()?;
            route.set_up("lo").and_then(|()| probe(&route, &namespace)).during("try it")
        })
    })
}

fn tun() -> Capability {
    let remedy = "without netem there is no wide-area path (--delay, --loss, --bandwidth): 'modprobe tun', as root, in \
                  a container with --device /dev/net/tun";
    match fs::File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Capability::there("TUN devices", "a wide-area path can be made without netem"),
        Err(error) => Capability::missing("TUN devices", format!("/dev/net/tun: {error}"), remedy),
    }
}

fn receive_steering() -> Capability {
    let there = fs::exists("/sys/class/net/lo/queues/rx-0/rps_cpus").unwrap_or(false);
    Capability::new(
        "receive packet steering",
        there,
        if there { "RPS is available" } else { "no rps_cpus in /sys/class/net" },
        "the client's CPU does the server's receive work: use a kernel with CONFIG_RPS",
    )
}
