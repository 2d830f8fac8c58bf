//! Client and server, each in a network namespace of its own, joined by a veth pair.

use crate::affinity::cpu_set;
use crate::cgroup::ServerCgroup;
use crate::error::{DuringStep, WanError};
use crate::namespace::NetNamespace;
use crate::rtnetlink::Route;
use crate::stale::end_processes_in_namespace;
use crate::state::{self, PairState, StateFolder};
use crate::steering::NamespaceSysfs;
use rustix::fd::AsFd;
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a pair is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairPlan {
    /// For messages; any text.
    pub name: String,
    /// CPUs of the server and of its receive processing; empty = not pinned, not steered.
    pub server_cpus: Vec<usize>,
    /// CPUs of the client's receive processing; empty = not steered. The engine pins its own threads.
    pub client_cpus: Vec<usize>,
}

/// Settings that a new namespace does not inherit, copied so that the server runs as it would on this host.
const COPIED_TO_BOTH: &[&str] = &[
    "net/core/somaxconn",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_syncookies",
    "net/ipv4/tcp_fin_timeout",
    "net/ipv4/tcp_abort_on_overflow",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
];
/// The client opens many connections to one address: all ports, and ports of closed connections again after a second.
const SET_IN_CLIENT: &[(&str, &str)] =
    &[("net/ipv4/ip_local_port_range", "1024 65535"), ("net/ipv4/tcp_tw_reuse", "1")];

/// Two joined namespaces. Dropping it removes everything, also the server's processes.
#[derive(Debug)]
pub struct Pair {
    name: String,
    token: String,
    server: NetNamespace,
    client: NetNamespace,
    original: NetNamespace,
    addresses: Addresses,
    server_cpus: Vec<usize>,
    cgroup: Option<ServerCgroup>,
    state_file: Option<PathBuf>,
    notes: Vec<String>,
    is_removed: bool,
}

/// Addresses of both ends: RFC 2544's benchmarking block, and a unique local prefix (RFC 4193), both drawn by the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addresses {
    server_v4: Ipv4Addr,
    client_v4: Ipv4Addr,
    server_v6: Ipv6Addr,
    client_v6: Ipv6Addr,
}

const PREFIX_BITS_V4: u8 = 30;
const PREFIX_BITS_V6: u8 = 64;

impl Addresses {
    fn of_token(token: &str) -> Self {
        let number = u64::from_str_radix(token, 16).unwrap_or(0);
        let [third, fourth] = [(number >> 8) as u8, (number as u8) & 0xfc];
        let word = |shift: u32| (number >> shift) as u16;
        let v6 = |host| Ipv6Addr::new(0xfd00 | (word(32) & 0xff), word(16), word(0), 0, 0, 0, 0, host);
        Addresses {
            server_v4: Ipv4Addr::new(198, 18, third, fourth + 1),
            client_v4: Ipv4Addr::new(198, 18, third, fourth + 2),
            server_v6: v6(1),
            client_v6: v6(2),
        }
    }
}

/// The name of the server's end of the link; 14 of the 15 bytes that a name may have.
pub(crate) fn server_link(token: &str) -> String {
    format!("sgs-{token}")
}

fn client_link(token: &str) -> String {
    format!("sgc-{token}")
}

impl Pair {
    /// Makes namespaces, link, addresses, settings and steering. On an error nothing is left.
    pub fn create(plan: &PairPlan) -> Result<Self, WanError> {
        cpu_set(&plan.server_cpus)?;
        cpu_set(&plan.client_cpus)?;
        let token = state::new_token()?;
        let mut pair = Pair {
            name: plan.name.clone(),
            server: NetNamespace::create()?,
            client: NetNamespace::create()?,
            original: NetNamespace::current()?,
            addresses: Addresses::of_token(&token),
            server_cpus: plan.server_cpus.clone(),
            cgroup: None,
            state_file: None,
            notes: Vec::new(),
            is_removed: false,
            token,
        };
        // The state file comes before anything that could outlive this process.
        pair.make_cgroup()?;
        pair.connect()?;
        pair.apply_settings()?;
        if let Err(error) = pair.steer(plan) {
            pair.notes
                .push(format!("receive processing runs on whichever CPU sends, as it could not be steered: {error}"));
        }
        Ok(pair)
    }

    fn make_cgroup(&mut self) -> Result<(), WanError> {
        let folder = StateFolder::open(Path::new(state::FOLDER))?;
        match ServerCgroup::create(&self.token) {
            Ok(cgroup) => self.cgroup = Some(cgroup),
            Err(error) => self.notes.push(format!("the server has no control group of its own: {error}")),
        }
        let state = PairState {
            owner_pid: std::process::id(),
            owner_start_ticks: state::process_start_ticks(std::process::id()).unwrap_or(0),
            boot_id: state::boot_id(),
            token: self.token.clone(),
            server_namespace: self.server.inode()?,
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().to_path_buf()),
        };
        self.state_file = Some(folder.write(&state)?);
        Ok(())
    }

    fn connect(&mut self) -> Result<(), WanError> {
        let (client_link, server_link) = (client_link(&self.token), server_link(&self.token));
        let ends = self.addresses;
        self.client.run_inside(|| {
            let route = Route::connect().during("talk to the kernel's rtnetlink")?;
            route.add_veth(&client_link, &server_link, self.server.as_fd()).map_err(veth_error)?;
            bring_up(&route, &client_link, ends.client_v4.into(), ends.client_v6.into())
        })?;
        let has_ipv6 = self.server.run_inside(|| {
            let route = Route::connect().during("talk to the kernel's rtnetlink")?;
            bring_up(&route, &server_link, ends.server_v4.into(), ends.server_v6.into())
        })?;
        if !has_ipv6 {
            self.notes.push("the pair has no IPv6 addresses: this kernel has IPv6 switched off".into());
        }
        Ok(())
    }

    /// Some settings belong to the whole machine on some kernels and are then not found or refused here: noted, no error.
    fn apply_settings(&mut self) -> Result<(), WanError> {
        let host: Vec<(&str, String)> = self
            .original
            .run_inside(|| Ok(COPIED_TO_BOTH.iter().filter_map(|name| Some((*name, read_setting(name)?))).collect()))?;
        for (side, namespace) in [("server", &self.server), ("client", &self.client)] {
            let refused = namespace.run_inside(|| {
                let copied = host.iter().map(|(name, value)| (*name, value.as_str()));
                let own = SET_IN_CLIENT.iter().copied().filter(|_| side == "client");
                Ok(copied.chain(own).filter_map(|(name, value)| set_setting(name, value).err()).collect::<Vec<_>>())
            })?;
            self.notes.extend(refused.into_iter().map(|why| format!("in the {side}'s namespace, {why}")));
        }
        Ok(())
    }

    fn steer(&self, plan: &PairPlan) -> Result<(), WanError> {
        for (namespace, link, cpus) in [
            (&self.server, server_link(&self.token), &plan.server_cpus),
            (&self.client, client_link(&self.token), &plan.client_cpus),
        ] {
            namespace.run_inside(|| {
                let sysfs = NamespaceSysfs::mount()?;
                sysfs.steer(&link, cpus)?;
                sysfs.steer("lo", cpus)
            })?;
        }
        Ok(())
    }

    /// The name from the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What could not be set up as it should be; the path works without it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The server's address, IPv4.
    pub fn server_addr_v4(&self) -> IpAddr {
        self.addresses.server_v4.into()
    }

    /// The server's address, IPv6.
    pub fn server_addr_v6(&self) -> IpAddr {
        self.addresses.server_v6.into()
    }

    /// The client's address, IPv4.
    pub fn client_addr_v4(&self) -> IpAddr {
        self.addresses.client_v4.into()
    }

    /// The client's address, IPv6.
    pub fn client_addr_v6(&self) -> IpAddr {
        self.addresses.client_v6.into()
    }

    /// The server's control group, where the kernel let one be made.
    pub fn server_cgroup(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(ServerCgroup::path)
    }

    /// The processes that the server consists of now; empty where there is no control group to tell.
    pub fn server_processes(&self) -> Vec<u32> {
        self.cgroup.as_ref().map(ServerCgroup::processes).unwrap_or_default()
    }

    /// Moves the calling thread, and threads it makes later, to the client's side.
    pub fn enter_client(&self) -> Result<(), WanError> {
        self.client.enter()
    }

    /// Moves the calling thread, and threads it makes later, to the server's side.
    pub fn enter_server(&self) -> Result<(), WanError> {
        self.server.enter()
    }

    /// Moves the calling thread back to where the pair was created.
    pub fn leave(&self) -> Result<(), WanError> {
        self.original.enter()
    }

    /// The server's namespace.
    pub fn server_namespace(&self) -> &NetNamespace {
        &self.server
    }

    /// The client's namespace.
    pub fn client_namespace(&self) -> &NetNamespace {
        &self.client
    }

    /// Steers the loopback device of the server's namespace (a server that talks to itself or to its back ends). Done at
    /// creation with the server's CPUs; an empty list switches it off.
    pub fn steer_loopback(&self, cpus: &[usize]) -> Result<(), WanError> {
        cpu_set(cpus)?;
        self.server.run_inside(|| NamespaceSysfs::mount()?.steer("lo", cpus))
    }

    /// The CPUs that receive processing of the server's and of the client's link is steered to, as the kernel shows it.
    pub fn steered_to(&self) -> Result<(Vec<usize>, Vec<usize>), WanError> {
        let read = |namespace: &NetNamespace, link: String| {
            namespace.run_inside(|| NamespaceSysfs::mount()?.steered_to(&link))
        };
        Ok((read(&self.server, server_link(&self.token))?, read(&self.client, client_link(&self.token))?))
    }

    /// Prepares `command` to run as the server: in its namespace, in its control group, on its CPUs, as the leader of a
    /// new session (so that Ctrl-C in a terminal does not reach it).
    ///
    /// The kernel kills the process when the *thread* that spawned it ends (`PR_SET_PDEATHSIG`), so spawn it from one that
    /// lives as long as the server should.
    pub fn run_server(&self, command: &mut Command) -> Result<(), WanError> {
        let namespace = self.server.try_clone_fd()?;
        let joining = self.cgroup.as_ref().map(ServerCgroup::joining_file).transpose()?;
        let cpus = (!self.server_cpus.is_empty()).then(|| cpu_set(&self.server_cpus)).transpose()?;
        let parent = rustix::process::getpid();
        let prepare = move || {
            if let Some(joining) = &joining {
                rustix::io::write(joining, b"0")?;
            }
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            if let Some(cpus) = &cpus {
                sched_setaffinity(None, cpus)?;
            }
            setsid()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the signal was asked for.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::OWNERDEAD.into());
            }
            Ok(())
        };
        // SAFETY: between fork and exec the closure only makes system calls on values prepared before; it neither
        // allocates nor takes locks.
        unsafe { command.pre_exec(prepare) };
        Ok(())
    }

    /// Removes everything: the server's processes, link, control group and state file. The namespaces go with the last
    /// thread that is still inside ([`leave`](Self::leave) first).
    pub fn remove(mut self) -> Result<(), WanError> {
        self.tear_down()
    }

    fn tear_down(&mut self) -> Result<(), WanError> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        let grouped = self.cgroup.take().map_or(Ok(0), |cgroup| cgroup.remove());
        // Whatever left the group, or never was in one. While this value holds the namespace its number is not reused, so
        // the number proves that a process is ours.
        end_processes_in_namespace(self.server.inode()?, |_| true);
        let link = client_link(&self.token);
        let deleted = self.client.run_inside(|| {
            let route = Route::connect().during("talk to the kernel's rtnetlink")?;
            match route.delete_link(&link) {
                Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error).during("delete the link"),
                _ => Ok(()),
            }
        });
        grouped?;
        deleted?;
        if let Some(path) = self.state_file.take() {
            fs::remove_file(&path).during(format!("remove {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A failure leaves the state file, so that the next run tries again.
        let _ = self.tear_down();
    }
}

fn veth_error(source: std::io::Error) -> WanError {
    match source.raw_os_error() {
        Some(libc::EPERM) => WanError::NotPermitted,
        Some(libc::EOPNOTSUPP) => WanError::Unsupported {
            what: "make a veth pair",
            remedy: "load the module with 'modprobe veth', or use a kernel with CONFIG_VETH",
            source,
        },
        _ => WanError::Step { what: "make a veth pair".into(), source },
    }
}

/// Returns whether the link has its IPv6 address too: a machine with IPv6 switched off still measures IPv4.
fn bring_up(route: &Route, link: &str, v4: IpAddr, v6: IpAddr) -> Result<bool, WanError> {
    route.set_up("lo").during("set the loopback device up")?;
    route.add_address(link, v4, PREFIX_BITS_V4).during(format!("give {link} the address {v4}"))?;
    // A host may hand its "IPv6 off" down to new namespaces.
    let _ = set_setting(&format!("net/ipv6/conf/{link}/disable_ipv6"), "0");
    let has_ipv6 = match route.add_address(link, v6, PREFIX_BITS_V6) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EACCES)) => false,
        result => result.during(format!("give {link} the address {v6}")).map(|()| true)?,
    };
    route.set_up(link).during(format!("set {link} up"))?;
    Ok(has_ipv6)
}

fn read_setting(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().replace('\t', " "))
}

/// Sets a setting of the calling thread's namespace unless it has the value already.
fn set_setting(name: &str, value: &str) -> Result<(), String> {
    if read_setting(name).as_deref() == Some(value) {
        return Ok(());
    }
    fs::write(format!("/proc/sys/{name}"), value)
        .map_err(|error| format!("{} could not be set to {value}: {error}", name.replace('/', ".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_in_their_blocks_whatever_the_token() {
        for token in ["0000000000", "ffffffffff", "0123456789", "a5a5a5a5a5"] {
            let ends = Addresses::of_token(token);
            assert_eq!(ends.server_v4.octets()[..2], [198, 18]);
            assert_eq!(u32::from(ends.server_v4) & !3, u32::from(ends.client_v4) & !3, "one /30");
            assert!(matches!(u32::from(ends.server_v4) & 3, 1) && matches!(u32::from(ends.client_v4) & 3, 2));
            assert_eq!(ends.server_v6.segments()[0] >> 8, 0xfd);
            assert_eq!(ends.server_v6.segments()[..4], ends.client_v6.segments()[..4], "one /64");
        }
    }

    #[test]
    fn link_names_fit_the_kernels_limit() {
        assert!(server_link("0123456789").len() < libc::IFNAMSIZ);
        assert!(client_link("0123456789").len() < libc::IFNAMSIZ);
    }
}
