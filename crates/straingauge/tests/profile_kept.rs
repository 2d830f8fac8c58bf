//! Output of `straingauge profile` from two kept profiles.

use crate::rig::{open_dir, run, straingauge};

#[test]
fn functions_that_grew_between_two_kept_profiles_are_named() {
    let dir = open_dir();
    let kept = |name: &str, of_send: u32| {
        let file = dir.path().join(name);
        let lines = format!("nginx;main;write_[k];tcp_sendmsg_[k] {of_send}\nnginx;main;parse 500\n");
        std::fs::write(&file, lines).expect("a folder of our own");
        file.display().to_string()
    };
    let (before, after) = (kept("before.folded", 500), kept("after.folded", 1500));
    let table = run(&mut straingauge(["profile", "--diff", &before, &after])).exits_with(0);
    assert!(table.out.contains("tcp_sendmsg"), "{}", table.out);
    let changes = run(&mut straingauge(["profile", "--diff", &before, &after, "--json"])).exits_with(0).json();
    let of = |function: &str, key: &str| {
        let changes = changes.as_array().expect("a list");
        let change = changes.iter().find(|change| change["function"] == function).expect(function);
        change[key].as_f64().expect("a share")
    };
    assert_eq!((of("tcp_sendmsg_[k]", "before_ratio"), of("tcp_sendmsg_[k]", "after_ratio")), (0.5, 0.75));
    assert_eq!((of("parse", "before_ratio"), of("parse", "after_ratio")), (0.5, 0.25));
}
