//! The cost of two runs by layer and function.

use analyze::compare::costs::under_one_root;
use record::profile::Folded;

#[test]
fn two_servers_are_compared_under_one_name_and_one_server_under_its_own() {
    let folded = |text: &str| Folded::parse(text.as_bytes()).unwrap();
    let both = |a: &str, b: &str| {
        let (a, b) = under_one_root(folded(a), folded(b));
        [a.to_text(), b.to_text()]
    };
    assert_eq!(
        both("nginx;read 3\n[packets on idle CPUs];rx 1\n", "lighttpd;read 5\n"),
        ["[packets on idle CPUs];rx 1\nserver;read 3\n", "server;read 5\n"]
    );
    assert_eq!(both("nginx;read 3\n", "nginx;read 5\nlogger;write 1\n")[0], "nginx;read 3\n");
}
