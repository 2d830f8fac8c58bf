//! Tests of the path as in a run, with real namespaces, links and processes. They need root; without it they are
//! skipped with that reason.

mod faults;
mod guest;
mod parts;
mod path;

use record::leftovers::{Leftover, SearchScope};
use record::{PathMechanism, PathPlan};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wan::{NamespacePair, NetNamespace, PairPlan, ServerCgroup, WanError};

const OWNER: &str = "STRAINGAUGE_TEST_OWNS_A_PAIR";

fn root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not run: network namespaces need root");
    }
    is_root
}

fn plan() -> PairPlan {
    let cpus = record::machine::online_cpus();
    PairPlan { server_cpus: vec![cpus - 1], client_cpus: vec![0], ..PairPlan::default() }
}

/// The CPUs to which the receive processing of the server's and of the client's link is steered.
fn steered_to(pair: &NamespacePair) -> [Vec<usize>; 2] {
    // A child inherits the thread's network namespace, which its own mount of sysfs shows.
    let script = "mount -t sysfs none /sys && cat /sys/class/net/sg*/queues/rx-0/rps_cpus";
    [pair.server_namespace(), pair.client_namespace()].map(|side| {
        let read = || Ok(Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap());
        let text = String::from_utf8(side.run_inside(read).unwrap().stdout).unwrap();
        let mask = u128::from_str_radix(&text.trim().replace(',', ""), 16).unwrap_or_else(|_| panic!("{text:?}"));
        (0..128).filter(|cpu| mask >> cpu & 1 == 1).collect()
    })
}

/// Waits for a state that comes soon. The limit only keeps a broken build from hanging.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

fn namespace_of(pid: u32) -> String {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap().to_string_lossy().into_owned()
}

/// Listens on the server's side and answers one connection with the bytes that it received.
fn echo_once(pair: &NamespacePair, address: IpAddr) -> (SocketAddr, std::thread::JoinHandle<IpAddr>) {
    let listener = pair
        .server_namespace()
        .run_inside(|| Ok(TcpListener::bind((address, 0)).expect("the address can be bound at once")))
        .unwrap();
    let at = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut bytes = [0u8; 4];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        peer.ip()
    });
    (at, thread)
}

fn talk_across(pair: &NamespacePair, server: IpAddr, client: IpAddr) {
    let (at, thread) = echo_once(pair, server);
    let answer = pair
        .client_namespace()
        .run_inside(|| {
            let mut stream = TcpStream::connect(at).expect("connects across the link");
            stream.write_all(b"ping").unwrap();
            let mut answer = [0u8; 4];
            stream.read_exact(&mut answer).unwrap();
            Ok(answer)
        })
        .unwrap();
    assert_eq!(&answer, b"ping");
    assert_eq!(thread.join().unwrap(), client, "the server sees the client's end");
}

#[test]
fn tcp_crosses_the_pair_by_both_address_families() {
    if !root() {
        return;
    }
    let pair = NamespacePair::create(&plan()).unwrap();
    talk_across(&pair, pair.server_addr_v4(), pair.client_addr_v4());
    talk_across(&pair, pair.server_addr_v6(), pair.client_addr_v6());
    pair.remove().unwrap();
}

#[test]
fn no_neighbour_requests_cross_the_link() {
    if !root() {
        return;
    }
    let pair = NamespacePair::create(&plan()).unwrap();
    let known = |namespace: &NetNamespace| {
        namespace.run_inside(|| Ok(std::fs::read_to_string("/proc/thread-self/net/arp").unwrap())).unwrap()
    };
    for (namespace, other) in
        [(pair.client_namespace(), pair.server_addr_v4()), (pair.server_namespace(), pair.client_addr_v4())]
    {
        let table = known(namespace);
        // ATF_COM and ATF_PERM (include/uapi/linux/if_arp.h). A lost neighbour request would delay all that follows
        // by a second.
        let line = table.lines().find(|line| line.starts_with(&format!("{other} "))).expect("known before any packet");
        assert_eq!(line.split_ascii_whitespace().nth(2), Some("0x6"), "{line}");
    }
    pair.remove().unwrap();
}

#[test]
fn a_pair_is_invisible_from_outside() {
    if !root() {
        return;
    }
    let pair = NamespacePair::create(&plan()).unwrap();
    let links = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!links.contains("sgs-") && !links.contains("sgc-"), "{links}");
    let addresses = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
    assert!(!addresses.contains(&pair.server_addr_v4().to_string()), "{addresses}");
    pair.remove().unwrap();
}

#[test]
fn receive_processing_is_steered_to_the_side_it_belongs_to() {
    if !root() {
        return;
    }
    let plan = plan();
    let pair = NamespacePair::create(&plan).unwrap();
    assert_eq!(steered_to(&pair), [plan.server_cpus, plan.client_cpus]);
    pair.remove().unwrap();
}

#[test]
fn the_client_has_every_port_and_reuses_them() {
    if !root() {
        return;
    }
    let pair = NamespacePair::create(&plan()).unwrap();
    let setting = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    let (range, reuse) =
        pair.client_namespace().run_inside(|| Ok((setting("ip_local_port_range"), setting("tcp_tw_reuse")))).unwrap();
    assert_eq!(range.split_whitespace().collect::<Vec<_>>(), ["1024", "65535"]);
    assert_eq!(reuse.trim(), "1");
    eprintln!("notes: {:?}", pair.notes());
    pair.remove().unwrap();
}

#[test]
fn both_ends_have_the_settings_of_the_creating_namespace() {
    if !root() {
        return;
    }
    const SETTINGS: [(&str, &str); 4] = [
        ("ipv4/tcp_notsent_lowat", "131072"),
        ("ipv4/tcp_keepalive_time", "77"),
        ("ipv4/ip_unprivileged_port_start", "80"),
        ("ipv6/bindv6only", "1"),
    ];
    let path = |name: &str| format!("/proc/sys/net/{name}");
    let host = NetNamespace::create().unwrap();
    let seen = host
        .run_inside(|| {
            SETTINGS.iter().for_each(|(name, value)| std::fs::write(path(name), value).unwrap());
            let pair = NamespacePair::create(&plan())?;
            let read = || Ok(SETTINGS.map(|(name, _)| std::fs::read_to_string(path(name)).unwrap().trim().to_string()));
            let seen = (pair.server_namespace().run_inside(read)?, pair.client_namespace().run_inside(read)?);
            assert_eq!(pair.notes(), [] as [String; 0]);
            pair.remove()?;
            Ok(seen)
        })
        .unwrap();
    let expected = SETTINGS.map(|(_, value)| value.to_string());
    assert_eq!(seen, (expected.clone(), expected));
}

fn sleeping_server(pair: &NamespacePair) -> Child {
    let mut command = Command::new("sleep");
    command.arg("300");
    pair.run_server(&mut command).unwrap();
    command.spawn().unwrap()
}

#[test]
fn the_server_runs_in_its_namespace_on_its_cpus_in_its_own_session() {
    if !root() {
        return;
    }
    let plan = plan();
    let pair = NamespacePair::create(&plan).unwrap();
    let mut server = sleeping_server(&pair);
    let pid = server.id();
    assert_eq!(namespace_of(pid), pair.server_namespace().name().unwrap());
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(allowed.trim(), plan.server_cpus[0].to_string());
    let session = rustix::process::getsid(rustix::process::Pid::from_raw(pid as i32)).unwrap();
    assert_eq!(session.as_raw_nonzero().get() as u32, pid);
    if let Some(cgroup) = pair.server_cgroup() {
        assert_eq!(cgroup.processes(), [pid]);
    }
    pair.remove().unwrap();
    assert_eq!(server.wait().unwrap().signal(), Some(9), "removal ends the server");
}

#[test]
fn removal_ends_the_servers_daemons_and_leaves_no_trace() {
    if !root() {
        return;
    }
    let pair = NamespacePair::create(&plan()).unwrap();
    let (mut shell, daemon) = server_with_daemon(&pair);
    let cgroup = pair.server_cgroup().map(|group| group.path().to_path_buf());
    pair.remove().unwrap();
    shell.wait().unwrap();
    eventually("the daemon ends", || !is_alive(daemon));
    assert!(cgroup.is_none_or(|path| !path.exists()));
}

/// A server that daemonises a process into a separate session, as nginx and Apache do.
fn server_with_daemon(pair: &NamespacePair) -> (Child, u32) {
    let mut command = Command::new("sh");
    command.args(["-c", "setsid sleep 300 & echo $!; exec sleep 300"]).stdout(Stdio::piped());
    pair.run_server(&mut command).unwrap();
    let mut shell = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
    let daemon = line.trim().parse().unwrap();
    (shell, daemon)
}

#[test]
fn removal_removes_the_servers_inner_groups() {
    if !root() {
        return;
    }
    let group = match ServerCgroup::create() {
        Ok(group) => group,
        Err(why) => return eprintln!("not run: {why}"),
    };
    let inner = group.path().join("of a server/and its worker");
    std::fs::create_dir_all(&inner).unwrap();
    let mut worker = Command::new("sleep").arg("300").spawn().unwrap();
    std::fs::write(inner.join("cgroup.procs"), worker.id().to_string()).unwrap();
    assert_eq!(group.remove().unwrap(), 1);
    assert_eq!(worker.wait().unwrap().signal(), Some(9));
    assert!(!group.path().exists());
}

#[test]
fn a_panic_removes_the_pair() {
    if !root() {
        return;
    }
    let (report, reported) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let pair = NamespacePair::create(&plan()).unwrap();
        let server = sleeping_server(&pair);
        report.send((server.id(), pair.server_cgroup().map(|group| group.path().to_path_buf()))).unwrap();
        // A child must be reaped, and a panicking owner does not reap it.
        std::mem::forget(server);
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    let (pid, cgroup) = reported.recv().unwrap();
    eventually("the server ends", || !is_alive(pid));
    assert!(cgroup.is_none_or(|path| !path.exists()));
}

#[test]
fn two_simultaneous_pairs_do_not_clash() {
    if !root() {
        return;
    }
    let first = NamespacePair::create(&plan()).unwrap();
    let second = NamespacePair::create(&plan()).unwrap();
    talk_across(&first, first.server_addr_v4(), first.client_addr_v4());
    talk_across(&second, second.server_addr_v4(), second.client_addr_v4());
    first.remove().unwrap();
    talk_across(&second, second.server_addr_v6(), second.client_addr_v6());
    second.remove().unwrap();
}

#[test]
fn a_thread_returns_to_its_namespace() {
    if !root() {
        return;
    }
    let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let before = own();
    let pair = NamespacePair::create(&plan()).unwrap();
    assert_eq!(own(), before, "creating moves nobody");
    pair.enter_client().unwrap();
    let inherited = std::thread::spawn(own).join().unwrap();
    assert_ne!(inherited, before, "threads made inside start inside");
    pair.enter_server().unwrap();
    pair.leave().unwrap();
    assert_eq!(own(), before);
    pair.remove().unwrap();
}

/// Not a separate test, but the process that [`the_next_run_removes_all_remains_of_a_killed_owner`] kills.
#[test]
fn owner_that_waits_to_be_killed() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    // The delay line is the hardest case. Its link dies with the process, so only the alias of lo names the owner of
    // the namespaces.
    let path = PathPlan { delay_ns: 1_000_000, mechanism: PathMechanism::TunDelayLine, ..PathPlan::default() };
    let pair = NamespacePair::create(&PairPlan { path, ..plan() }).unwrap();
    let (shell, daemon) = server_with_daemon(&pair);
    let cgroup = pair.server_cgroup().map(|group| group.path().display().to_string()).unwrap_or_default();
    println!("\nowns {} {daemon} {} {cgroup}", shell.id(), pair.server_namespace().name().unwrap());
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn the_next_run_removes_all_remains_of_a_killed_owner() {
    if !root() {
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_that_waits_to_be_killed", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(owner.stdout.take().unwrap());
    let line = std::io::BufRead::lines(output)
        .map_while(Result::ok)
        .find(|line| line.starts_with("owns "))
        .expect("the owner made its pair");
    let words: Vec<&str> = line.split(' ').collect();
    let (server, daemon): (u32, u32) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let namespace = words[3];
    // Held open, so that no other namespace gets its number.
    let _held = std::fs::File::open(format!("/proc/{server}/ns/net")).unwrap();
    assert!(is_alive(server) && is_alive(daemon));

    let of_owner = |left: &Leftover| left.owner.pid == owner.id();
    assert!(!left_over().iter().any(of_owner), "a living owner's pair is not left over");
    assert!(is_alive(server) && is_alive(daemon), "a living owner's pair is not stale");

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("the kernel ends the server with its parent", || !is_alive(server));
    assert!(is_alive(daemon), "what the server daemonised outlives it: this is what is left over");
    let left: Vec<Leftover> = left_over().into_iter().filter(|left| left.owner.pid == owner.id()).collect();
    let by_alias = left.last().expect("the daemon's namespace is found, also where there are no control groups");
    assert_eq!((by_alias.kind, by_alias.name.as_str()), (wan::LEFTOVERS[1].name, namespace));
    (wan::LEFTOVERS[1].remove)(by_alias).unwrap();
    eventually("the daemon ends", || !is_alive(daemon));
    remove(&left);
    assert!(words[4].is_empty() || !Path::new(words[4]).exists(), "the control group is gone");
    let anyone_inside = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| std::fs::read_link(entry.path().join("ns/net")).is_ok_and(|at| at.to_string_lossy() == namespace));
    assert!(!anyone_inside);
    assert!(!left_over().iter().any(|left| left.owner.pid == owner.id()), "nothing is left");
}

/// Remains of killed runs' paths, including other tests on this machine.
fn left_over() -> Vec<Leftover> {
    wan::LEFTOVERS.iter().flat_map(|kind| (kind.find)(&SearchScope::default()).left).collect()
}

fn remove(left: &[Leftover]) {
    for kind in wan::LEFTOVERS {
        left.iter().filter(|left| left.kind == kind.name).for_each(|left| (kind.remove)(left).unwrap());
    }
}

#[test]
fn a_user_without_privileges_gets_one_clear_sentence() {
    let message = WanError::NotPermitted.to_string();
    assert!(message.contains("sudo") && !message.contains('\n'), "{message}");
    if !root() {
        assert_eq!(NamespacePair::create(&plan()).unwrap_err().to_string(), message);
        return;
    }
    // Capabilities belong to threads. This thread drops them, so that it runs like a process of another user.
    let refused = std::thread::spawn(|| {
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        NamespacePair::create(&plan()).unwrap_err().to_string()
    })
    .join()
    .unwrap();
    assert_eq!(refused, message);
}

#[test]
fn a_plan_with_an_unknown_cpu_creates_no_pair() {
    let refused = NamespacePair::create(&PairPlan { server_cpus: vec![1000], ..plan() }).unwrap_err().to_string();
    assert!(refused.starts_with("CPU 1000 cannot be used"), "{refused}");
}
