//! `compare --page`: the page of two kept runs in a browser.

use crate::recorded;
use crate::report_page::{browser, keep, look};
use crate::rig::{open_dir, run, skip_unless, straingauge};

#[test]
fn a_comparison_also_writes_a_page_and_keeps_its_exit_code() {
    let dir = open_dir();
    let page = dir.path().join("page.html");
    let mut command = straingauge(["compare"]);
    let (a, b) = (recorded::run("haproxy-epoll"), recorded::run("haproxy-poll"));
    command.arg(a.path()).arg(b.path()).arg("--page").arg(&page);
    let said = run(&mut command).exits_with(3);
    assert!(said.out.starts_with("A: ") && said.err.contains("report: "), "{} {}", said.out, said.err);
    let html = std::fs::read_to_string(&page).expect("the page is written");
    for words in ["haproxy -db -f", "haproxy -de -db -f", "No flame graph: A has no stacks"] {
        assert!(html.contains(words), "{words}");
    }
    skip_unless!(browser().is_some(), "no Chromium here (apt-get install chromium-headless-shell)");
    let seen = look(&page, &["--dump-dom".into()]);
    assert_eq!(seen.console(), Vec::<&str>::new(), "the page says something on the console");
    keep(&page, "compare");
}

#[test]
fn an_impossible_page_is_refused_before_comparing() {
    let dir = open_dir();
    let (a, b) = (recorded::run("haproxy-epoll"), recorded::run("nginx"));
    let compare =
        |page: &std::path::Path| run(straingauge(["compare"]).arg(a.path()).arg(b.path()).arg("--page").arg(page));
    compare(dir.path()).exits_with(2).complains_of(&["is a folder"]);
    let page = dir.path().join("no/page.html");
    compare(&page).exits_with(1).complains_of(&["cannot write"]);
}
