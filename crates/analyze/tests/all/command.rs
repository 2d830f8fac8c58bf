//! The server's command in remedies.

use crate::fixture;
use analyze::verdict::command::{server_pid, set_limit};
use record::RunDir;

#[test]
fn debuggers_are_not_pointed_at_the_first_of_several_processes() {
    let mut record = fixture::record();
    fixture::loaded(&mut record).server = None;
    let mut pid = |processes: &str| {
        for (name, value) in [("pid", "41"), ("processes", processes)] {
            record.server_facts.insert(name.into(), value.into());
        }
        let record = record.clone();
        server_pid(&RunDir { path: Default::default(), record, points: Vec::new(), reading_doubts: Vec::new() })
    };
    assert_eq!((pid("1"), pid("3")), ("41".to_string(), "PID".to_string()));
}

#[test]
fn a_limit_is_found_where_a_command_sets_it() {
    for (word, limit) in [
        ("ulimit -n 64; exec server", Some("64")),
        ("cd /srv && ulimit  -S -n 1024 && exec server", Some("1024")),
        ("ulimit -c 0; ulimit -Hn 200; server", Some("200")),
        ("--nofile=64:64", Some("64")),
        ("LimitNOFILE=64", Some("64")),
        ("ulimit -c 0; exec server", None),
        ("ulimit -n unlimited; server", None),
        ("ulimit", None),
        ("server -n 64", None),
    ] {
        assert_eq!(set_limit(word).map(|at| &word[at]), limit, "{word}");
    }
}
