use crate::affinity::cpu_set;
use crate::cgroup::{self, ServerCgroup};
use crate::delay_line::DelayLine;
use crate::error::{DuringStep, WanError};
use crate::link::{self, Addresses, EmulatedPath, PathSides, client_link, server_link};
use crate::meter::PathMeter;
use crate::namespace::NetNamespace;
use crate::rtnetlink::Route;
use crate::self_test::{self, SelfTest};
use crate::setting;
use crate::stale::end_processes_in_namespace;
use crate::steering::NamespaceSysfs;
use record::PathPlan;
use rustix::fd::AsFd;
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Plan of a pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairPlan {
    /// CPUs of the server and of its receive processing. Empty for no pinning or steering.
    pub server_cpus: Vec<usize>,
    /// CPUs of the client's receive processing. Empty for no steering. The engine pins its own threads.
    pub client_cpus: Vec<usize>,
    /// The path; [`PathPlan::default`] is a veth link without emulation. The mechanism `Other` means netem if the
    /// kernel has it, else the TUN delay line.
    pub path: PathPlan,
    /// Whether to use the documented addresses (server 198.18.0.1 and fd00::1, client .2 and ::2) instead of drawn
    /// ones.
    pub has_known_addresses: bool,
}

/// Settings that a new namespace does not inherit. They and all of TCP's are copied, so that the server runs as it
/// would on this host.
const COPIED_TO_BOTH: [&str; 3] = ["net/core/somaxconn", PRIVILEGED, "net/ipv6/bindv6only"];
/// Setting of the first port that needs no privilege.
const PRIVILEGED: &str = "net/ipv4/ip_unprivileged_port_start";
const FIRST_PORT: u32 = 1024;
/// The client opens many connections to one address, so it gets all ports, and reuses those of closed connections
/// after a second.
const SET_IN_CLIENT: &[(&str, &str)] =
    &[("net/ipv4/ip_local_port_range", "1024 65535"), ("net/ipv4/tcp_tw_reuse", "1")];

/// Two joined namespaces. Dropping it removes them with the server's processes.
#[derive(Debug)]
pub struct NamespacePair {
    token: String,
    server: NetNamespace,
    client: NetNamespace,
    original: NetNamespace,
    addresses: Addresses,
    server_cpus: Vec<usize>,
    cgroup: Option<ServerCgroup>,
    notes: Vec<String>,
    path: PathPlan,
    meter: PathMeter,
    /// The delay line, if it is the mechanism. Its devices live as long as this value.
    line: Option<DelayLine>,
    is_removed: bool,
}

impl NamespacePair {
    /// Creates namespaces, link, addresses, settings and steering. An error leaves nothing behind.
    pub fn create(plan: &PairPlan) -> Result<Self, WanError> {
        cpu_set(&plan.server_cpus)?;
        cpu_set(&plan.client_cpus)?;
        plan.path.check()?;
        let token = cgroup::new_token()?;
        let (server, client, original) = (NetNamespace::create()?, NetNamespace::create()?, NetNamespace::current()?);
        let addresses = if plan.has_known_addresses { Addresses::known() } else { Addresses::of_token(&token) };
        let sides =
            PathSides { client: &client, server: &server, token: &token, addresses, line_cpus: &plan.client_cpus };
        let EmulatedPath { plan: path, meter, line, notes } = link::join(&sides, &plan.path)?;
        let server_cpus = plan.server_cpus.clone();
        let mut pair = NamespacePair {
            token,
            server,
            client,
            original,
            addresses,
            server_cpus,
            cgroup: None,
            notes,
            path,
            meter,
            line,
            is_removed: false,
        };
        match ServerCgroup::with_token(&pair.token) {
            Ok(cgroup) => pair.cgroup = Some(cgroup),
            Err(error) => pair.notes.push(format!("the server has no separate control group: {error}")),
        }
        pair.apply_settings()?;
        if let Err(error) = pair.steer(plan) {
            pair.notes.push(format!("receive processing could not be steered, so it runs on the sending CPU: {error}"));
        }
        Ok(pair)
    }

    /// Settings that a new namespace lacks or cannot write belong to the whole machine. Other refused settings become
    /// notes.
    fn apply_settings(&mut self) -> Result<(), WanError> {
        let host: Vec<(String, String)> = self.original.run_inside(|| {
            let names = COPIED_TO_BOTH.map(String::from).into_iter().chain(setting::named("net/ipv4/tcp_"));
            Ok(names.filter_map(|name| setting::read(&name).map(|value| (name, value))).collect())
        })?;
        for (side, namespace) in [("server", &self.server), ("client", &self.client)] {
            let refused = namespace.run_inside(|| {
                let copied = host.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let copied = copied.filter(|(name, value)| {
                    // The kernel keeps the client's ports above the privileged ones.
                    let takes_ports = *name == PRIVILEGED && value.parse::<u32>().is_ok_and(|first| first > FIRST_PORT);
                    setting::is_writable(name) && !(side == "client" && takes_ports)
                });
                let own = SET_IN_CLIENT.iter().copied().filter(|_| side == "client");
                Ok(copied.chain(own).filter_map(|(name, value)| setting::set(name, value).err()).collect::<Vec<_>>())
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

    /// Settings that could not be made as planned. The path works without them.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The path with the mechanism in use.
    pub fn path(&self) -> &PathPlan {
        &self.path
    }

    /// Counters and lateness of the path.
    pub fn path_meter(&self) -> PathMeter {
        self.meter.clone()
    }

    /// Tests the path with pings and, if it has a bandwidth, a train of packets. Takes about a round trip and a
    /// quarter of a second, longer on slow links. Its packets are not in the meter's next reading. Returns
    /// [`WanError::Stopped`] soon after `should_stop` returns true.
    pub fn self_test(&self, should_stop: &(dyn Fn() -> bool + Sync)) -> Result<SelfTest, WanError> {
        let now = self.meter.plan();
        let seen = self_test::run(&now, &self.client, &self.server, self.addresses.server_v4.into(), should_stop)?;
        self.meter.take();
        Ok(seen)
    }

    /// The server's IPv4 address.
    pub fn server_addr_v4(&self) -> IpAddr {
        self.addresses.server_v4.into()
    }

    /// The server's IPv6 address.
    pub fn server_addr_v6(&self) -> IpAddr {
        self.addresses.server_v6.into()
    }

    /// The client's IPv4 address.
    pub fn client_addr_v4(&self) -> IpAddr {
        self.addresses.client_v4.into()
    }

    /// The client's IPv6 address.
    pub fn client_addr_v6(&self) -> IpAddr {
        self.addresses.client_v6.into()
    }

    /// The server's control group, if the kernel allowed one.
    pub fn server_cgroup(&self) -> Option<&ServerCgroup> {
        self.cgroup.as_ref()
    }

    /// Moves the calling thread to the client's side. Threads that it creates later start there too.
    pub fn enter_client(&self) -> Result<(), WanError> {
        self.client.enter()
    }

    /// Moves the calling thread to the server's side. Threads that it creates later start there too.
    pub fn enter_server(&self) -> Result<(), WanError> {
        self.server.enter()
    }

    /// Moves the calling thread back to the namespace in which the pair was created.
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

    /// Prepares `command` to run as the server: in its namespace, in its control group, on its CPUs, as the leader of
    /// a new session, so that Ctrl-C in a terminal does not reach it.
    ///
    /// The kernel kills the process when the *thread* that spawned it ends (`PR_SET_PDEATHSIG`), so spawn it from a
    /// thread that lives as long as the server should.
    pub fn run_server(&self, command: &mut Command) -> Result<(), WanError> {
        self.run_at(&self.server, &self.server_cpus, true, self.cgroup.as_ref(), command)
    }

    /// Prepares `command` to run on the server's side: in its namespace, on its CPUs, as the leader of a new session.
    /// It does not join the control group, which counts the server's resources. It ends with the pair.
    pub fn run_beside_server(&self, command: &mut Command) -> Result<(), WanError> {
        self.run_at(&self.server, &self.server_cpus, true, None, command)
    }

    /// Prepares `command` to run as a client in the client's namespace. It joins the control group, so that it ends
    /// with the pair, and stays in this process's session, so that it keeps the terminal.
    pub fn run_client(&self, command: &mut Command) -> Result<(), WanError> {
        self.run_at(&self.client, &[], false, self.cgroup.as_ref(), command)
    }

    fn run_at(
        &self,
        side: &NetNamespace,
        cpus: &[usize],
        has_own_session: bool,
        cgroup: Option<&ServerCgroup>,
        command: &mut Command,
    ) -> Result<(), WanError> {
        let namespace = side.try_clone_fd()?;
        let joining = cgroup.map(ServerCgroup::joining_file).transpose()?;
        let cpus = (!cpus.is_empty()).then(|| cpu_set(cpus)).transpose()?;
        let parent = rustix::process::getpid();
        let prepare = move || {
            if let Some(joining) = &joining {
                rustix::io::write(joining, b"0")?;
            }
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            if let Some(cpus) = &cpus {
                sched_setaffinity(None, cpus)?;
            }
            if has_own_session {
                setsid()?;
            }
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the signal was requested.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::OWNERDEAD.into());
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls on values prepared before the fork; it neither allocates nor
        // locks.
        unsafe { command.pre_exec(prepare) };
        Ok(())
    }

    /// Removes the server's processes, the link and the control group. The namespaces vanish when the last thread has
    /// left them ([`leave`](Self::leave)).
    pub fn remove(mut self) -> Result<(), WanError> {
        self.tear_down()
    }

    /// Parts that could not be removed stay in this value for another attempt.
    fn tear_down(&mut self) -> Result<(), WanError> {
        if self.is_removed {
            return Ok(());
        }
        let grouped = self.cgroup.as_ref().map_or(Ok(0), ServerCgroup::remove);
        if grouped.is_ok() {
            self.cgroup = None;
        }
        // Ends processes that left the group or were never in one. This value holds the namespace, so its number is
        // not reused and proves that a process belongs to the pair.
        for namespace in [&self.server, &self.client] {
            end_processes_in_namespace(&namespace.name()?, |_| true);
        }
        // The delay line's devices vanish with its thread. A veth is deleted below.
        self.line = None;
        let link = client_link(&self.token);
        let deleted = self.client.run_inside(|| {
            let route = Route::connect()?;
            match route.delete_link(&link) {
                Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error).during("delete the link"),
                _ => Ok(()),
            }
        });
        grouped?;
        deleted?;
        self.is_removed = true;
        Ok(())
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
