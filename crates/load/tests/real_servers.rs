//! Redis and memcached, if installed: our counts equal those of the server.

use crate::servers::*;
use record::LoadPlan;
use record::protocol::{ANSWER, Keyspace, MISS, MemcachedPlan, Protocol, RedisPlan, redis_error};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Program {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program on a free loopback port. `None` if it is not installed, with a message on standard error.
pub fn started(test: &str, program: &str, arguments: impl Fn(u16) -> Vec<String>) -> Option<Program> {
    for _ in 0..5 {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let spawned = Command::new(program)
            .args(arguments(port))
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = spawned else {
            eprintln!("SKIPPED {test}: {program} is not installed");
            return None;
        };
        let mut program = Program { child, address: ([127, 0, 0, 1], port).into() };
        // The program ends if another one has taken the port meanwhile.
        while program.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(program.address).is_ok() {
                return Some(program);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    panic!("{program} does not listen on any of five free ports");
}

/// Sends these bytes and returns the server's answer up to `end`.
fn said(address: SocketAddr, words: &str, end: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&all).contains(end) {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn speaking(protocol: Protocol, address: SocketAddr) -> LoadPlan {
    LoadPlan { protocol, targets: Vec::new(), threads: 2, connections: 4, ..plan(address) }
}

fn redis_server(test: &str, password: &str) -> Option<Program> {
    started(test, "redis-server", |port| {
        let port = port.to_string();
        let mut words = vec!["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        if !password.is_empty() {
            words.extend(["--requirepass", password]);
        }
        words.into_iter().map(String::from).collect()
    })
}

/// How many times Redis ran a command, by its own statistics.
fn calls(address: SocketAddr, password: &str, command: &str) -> u64 {
    let auth = if password.is_empty() { String::new() } else { format!("AUTH {password}\r\n") };
    let stats = said(address, &format!("{auth}INFO commandstats\r\nPING\r\n"), "+PONG");
    let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn redis_counts_the_same_commands() {
    let Some(server) = redis_server("redis_counts_the_same_commands", "secret") else { return };
    for pipeline in [1, 16] {
        let before = (calls(server.address, "secret", "get"), calls(server.address, "secret", "set"));
        let keyspace = Keyspace { keys: 100, zipf_exponent: 0.99, read_ratio: 0.8, value_bytes: 20_000 };
        let redis = RedisPlan { keyspace, password: "secret".into(), database: 2, pipeline, ..RedisPlan::default() };
        let result = run(&speaking(Protocol::Redis(redis), server.address));
        let (outcomes, statuses) = (result.counts.outcomes, &result.counts.status_counts);
        assert_eq!((outcomes.ok, outcomes.sum()), (outcomes.sent, outcomes.requests()), "{:?}", result.first_errors);
        let gets = calls(server.address, "secret", "get") - before.0;
        let sets = calls(server.address, "secret", "set") - before.1;
        assert_eq!(gets + sets, outcomes.sent, "INFO commandstats; {pipeline} in flight");
        let share = gets as f64 / outcomes.sent as f64;
        assert!(outcomes.sent > 100 && (0.6..0.95).contains(&share), "{gets} of {}", outcomes.sent);
        assert!(statuses[&ANSWER] + statuses.get(&MISS).unwrap_or(&0) == outcomes.ok, "{statuses:?}");
    }
    assert_eq!(calls(server.address, "secret", "select"), 8, "one for each connection");
}

#[test]
fn redis_commands_are_sent_in_turn_and_its_errors_are_distinguished() {
    let name = "redis_commands_are_sent_in_turn_and_its_errors_are_distinguished";
    let Some(server) = redis_server(name, "") else { return };
    let command = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let commands = vec![
        command("LPUSH list:{key} {value}"),
        command("GET list:{key}"),
        command("LRANGE list:{key} 0 9"),
        command("NO"),
    ];
    let mut redis = RedisPlan { commands, pipeline: 8, ..RedisPlan::default() };
    redis.keyspace.keys = 1;
    let mut plan = speaking(Protocol::Redis(redis), server.address);
    plan.threads = 1;
    let result = run(&plan);
    let (outcomes, statuses) = (result.counts.outcomes, &result.counts.status_counts);
    assert_eq!(outcomes.completed(), outcomes.sent, "{:?}", result.first_errors);
    assert_eq!(calls(server.address, "", "lpush"), outcomes.sent.div_ceil(4));
    let (wrong_type, unknown) = (statuses[&redis_error(b"WRONGTYPE")], statuses[&redis_error(b"ERR")]);
    assert_eq!((wrong_type + unknown, statuses.len()), (outcomes.non_2xx, 3), "{statuses:?}");
    assert_eq!(unknown, outcomes.sent / 4);
    let answer = load::probe(&plan, Duration::from_secs(5)).unwrap();
    assert_eq!((answer.status, answer.error), (ANSWER, None));
}

#[test]
fn memcached_counts_the_same_commands() {
    let name = "memcached_counts_the_same_commands";
    let server = started(name, "memcached", |port| {
        ["-p", &port.to_string(), "-U", "0", "-l", "127.0.0.1", "-u", "nobody"].map(String::from).to_vec()
    });
    let Some(server) = server else { return };
    let stat = |of: &str| -> u64 {
        let stats = said(server.address, "stats\r\n", "END");
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {of} ")).map(String::from));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{of} in {stats}"))
    };
    for (pipeline, keys_per_get, is_meta) in [(1, 1, false), (8, 3, false), (1, 1, true), (8, 3, true)] {
        let before = ["cmd_get", "cmd_set", "get_misses"].map(stat);
        let keyspace = Keyspace { keys: 2_000, read_ratio: 0.7, ..Keyspace::default() };
        let memcached = MemcachedPlan { keyspace, keys_per_get, is_meta, pipeline };
        let plan = speaking(Protocol::Memcached(memcached), server.address);
        let result = run(&plan);
        let (outcomes, statuses) = (result.counts.outcomes, &result.counts.status_counts);
        assert_eq!((outcomes.ok, outcomes.sum()), (outcomes.sent, outcomes.requests()), "{:?}", result.first_errors);
        let after = ["cmd_get", "cmd_set", "get_misses"].map(stat);
        let [gets, sets, misses] = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!(gets / u64::from(keys_per_get) + sets, outcomes.sent, "stats: {gets} keys got, {sets} set");
        assert!(gets % u64::from(keys_per_get) == 0 && sets > 0 && (misses > 0 || is_meta), "{gets} {sets} {misses}");
        let missed = statuses.get(&MISS).copied().unwrap_or(0);
        assert!(missed <= misses && misses <= missed * u64::from(keys_per_get), "{missed} of {misses}");
    }
}
