//! If the exact profile is not possible, the message names the alternative.

use super::load::Actor;
use observe::profile::ProfileError;
use observe::profile::exact::{self, BurstOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

fn options(port: u16) -> BurstOptions {
    BurstOptions { port, netns_pid: None, burst: Duration::from_millis(20) }
}

#[test]
fn the_error_names_a_kernel_that_refuses_hooks() {
    let mut server = Actor::start("idle");
    let port = server.port();
    let result = exact::run(options(port), &|| false);
    match (exact::why_not_possible(), result) {
        (Some(why), Err(error)) => {
            let sentence = error.to_string();
            assert!(!why.is_empty());
            match error {
                ProfileError::ExactNotPossible(_) => {
                    assert!(
                        sentence.contains("not possible here") && sentence.contains("--accounting sampled"),
                        "{sentence}"
                    )
                }
                ProfileError::NotPermitted | ProfileError::Symbols(_) => {}
                other => panic!("{other}"),
            }
        }
        // The server is idle, so there is nothing to charge.
        (None, Err(error @ ProfileError::NoTime { .. })) => {
            assert!(error.to_string().contains("load"), "{error}")
        }
        (why, result) => panic!("{why:?}, {result:?}"),
    }
}

#[test]
fn a_port_without_a_server_is_reported_before_hooks_are_attached() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    match exact::run(options(free), &|| false) {
        Err(ProfileError::NoServer { port }) => assert_eq!(port, free),
        other => panic!("{other:?}"),
    }
}
