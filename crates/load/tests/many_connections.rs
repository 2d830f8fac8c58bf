//! Opens the maximum number of connections of a process, to a child process that accepts them.

use crate::servers::{MS, plan, run};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

const AS_SERVER: &str = "STRAINGAUGE_TEST_SERVER";
const AS_CLIENT: &str = "STRAINGAUGE_TEST_CLIENT";
const WANTED: u64 = 19_000;

/// Not a test by itself: the test below runs it in a child process, with the environment variable set.
#[test]
fn child_server() {
    if std::env::var_os(AS_SERVER).is_none() {
        return;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // SAFETY: listen() may be called again on a listening socket, with a longer queue.
    unsafe { libc::listen(listener.as_raw_fd(), 4096) };
    println!("port {}", listener.local_addr().unwrap().port());
    accept_and_answer(&listener);
}

/// A minimal event loop, because a thread per connection would mean 19,000 threads.
fn accept_and_answer(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    // SAFETY: plain system calls on descriptors and buffers that live through each call; the process is killed at last.
    unsafe {
        let epoll = libc::epoll_create1(0);
        let add = |fd: i32| {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event);
        };
        add(listener.as_raw_fd());
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        let mut buffer = [0u8; 4096];
        let answer = crate::servers::SMALL;
        loop {
            let count = libc::epoll_wait(epoll, events.as_mut_ptr(), 256, -1);
            for event in &events[..count.max(0) as usize] {
                let fd = event.u64 as i32;
                if fd == listener.as_raw_fd() {
                    loop {
                        let new = libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_NONBLOCK);
                        if new < 0 {
                            break;
                        }
                        add(new);
                    }
                } else if libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) > 0 {
                    libc::send(fd, answer.as_ptr().cast(), answer.len(), libc::MSG_NOSIGNAL);
                } else {
                    libc::close(fd);
                }
            }
        }
    }
}

/// The client's process, separate because other tests in this process use descriptors, too.
#[test]
fn child_client() {
    let Some(address) = std::env::var(AS_CLIENT).ok().and_then(|text| text.parse().ok()) else { return };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let wanted = WANTED.min(limit.rlim_max.saturating_sub(800));
    if wanted < WANTED {
        println!("{wanted} instead of {WANTED} connections: RLIMIT_NOFILE allows no more");
    }
    let mut plan = plan(address);
    plan.connections = wanted;
    plan.duration_ns = 500 * MS;
    plan.timeout_ns = 30_000 * MS;
    plan.connect_timeout_ns = 30_000 * MS;
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.connects, wanted, "{:?}", result.counts.outcomes);
    assert_eq!(result.counts.outcomes.connects_failed, 0, "{:?}", result.first_errors);
    assert!(result.engine.memory_bytes_per_connection <= 1024.0);
}

fn child(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(variable, value);
    command
}

#[test]
fn all_of_nineteen_thousand_connections_open_from_several_sources() {
    let mut server =
        child("many_connections::child_server", AS_SERVER, "1").stdout(Stdio::piped()).spawn().expect("a child");
    let port = BufReader::new(server.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split("port ").nth(1)?.trim().parse::<u16>().ok())
        .expect("the child says its port");
    let client = child("many_connections::child_client", AS_CLIENT, &format!("127.0.0.1:{port}")).output().unwrap();
    let _ = server.kill();
    let _ = server.wait();
    let text = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{text}{}", String::from_utf8_lossy(&client.stderr));
    assert!(text.contains("1 passed"), "{text}");
    print!("{text}");
}
