//! Where the exact profile is not possible, the message says what is.

use super::load::Actor;
use observe::profile::ProfileError;
use observe::profile::exact::{self, BurstOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

fn options(port: u16) -> BurstOptions {
    BurstOptions { port, netns_pid: None, burst: Duration::from_millis(20) }
}

#[test]
fn a_kernel_that_refuses_hooks_is_said_to() {
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
        // The server does nothing, so there is nothing to charge.
        (None, Err(error @ ProfileError::NoTime { .. })) => {
            assert!(error.to_string().contains("load"), "{error}")
        }
        (why, result) => panic!("{why:?}, {result:?}"),
    }
}

#[test]
fn nobody_on_the_port_is_said_before_anything_is_hooked() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    match exact::run(options(free), &|| false) {
        Err(ProfileError::NoServer { port }) => assert_eq!(port, free),
        other => panic!("{other:?}"),
    }
}
