//! Text from outside reaches the terminal as text: without control characters, escape sequences or changes of
//! direction, whichever way it came.

use crate::bad_workloads::LINE;
use crate::broken_server::{BrokenServer, Fault, HOSTILE};
use crate::rig::{Said, free_port, run, straingauge};
use crate::workers::from;

/// The hostile text as a format of printf.
const IN_OCTAL: &str = r"red\033[31m\342\200\256\302\2332J\007\342\201\246end";

/// Asserts that the text was shown, and only as text.
#[track_caller]
fn is_shown_as_text(said: &Said) {
    let all = format!("{}{}", said.out, said.err);
    let is_bad = |c: &char| {
        c.is_control() && *c != '\n'
            || matches!(*c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(all.chars().find(is_bad), None, "{all:?}");
    assert!(all.contains("red") && all.contains("end"), "what was said is not shown: {all}");
}

#[test]
fn output_of_an_ended_server_is_escaped() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let script = format!("printf '{IN_OCTAL}' >&2; exit 3");
    let said = run(&mut straingauge(["load", &url, "--isolate", "never", "--", "sh", "-c", &script])).exits_with(1);
    assert!(said.err.contains("saying: red?[31m??2J??end"), "{}", said.err);
    is_shown_as_text(&said);
}

#[test]
fn standard_error_and_messages_of_a_worker_are_escaped() {
    let complains = format!("printf '{IN_OCTAL}\\n' >&2; exit 7");
    is_shown_as_text(&run(&mut from(&[&complains], &["http://127.0.0.1:9/"])).exits_with(1));
    let hello = crate::workers::hello(env!("CARGO_PKG_VERSION"));
    let why = HOSTILE.replace('\u{1b}', "\\u001b").replace('\u{9b}', "\\u009b").replace('\u{7}', "\\u0007");
    let refuses = format!(r#"echo '{hello}'; read -r plan; printf '%s\n' '{{"type":"refused","why":"{why}"}}'"#);
    let said = run(&mut from(&[&refuses], &["http://127.0.0.1:9/"])).exits_with(1);
    assert!(said.err.contains("it refused: red?"), "{}", said.err);
    is_shown_as_text(&said);
    let nonsense = format!("echo '{hello}'; read -r plan; printf '{IN_OCTAL}\\n'");
    is_shown_as_text(&run(&mut from(&[&nonsense], &["http://127.0.0.1:9/"])).exits_with(1));
}

#[test]
fn fields_of_an_answer_are_escaped() {
    let server = BrokenServer::start(Fault::HostileRedirect);
    let said = run(&mut straingauge(["find", &server.url()])).exits_with(1);
    assert!(said.err.contains("redirect"), "{}", said.err);
    is_shown_as_text(&said);
}

#[test]
fn names_of_files_and_lines_of_a_log_are_escaped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let name = folder.path().join(HOSTILE);
    let path = name.to_str().expect("it is UTF-8");
    is_shown_as_text(&run(&mut straingauge(["report", path])).exits_with(1));
    is_shown_as_text(&run(&mut straingauge(["load", "http://127.0.0.1:9/", "--trace", path])).exits_with(1));
    std::fs::write(&name, format!("{HOSTILE}\n{}", LINE.replace("GET /", &format!("{HOSTILE} /"))))
        .expect("our own folder");
    is_shown_as_text(&run(&mut straingauge(["load", "http://127.0.0.1:9/", "--trace", path])).exits_with(1));
    std::fs::write(&name, HOSTILE).expect("our own folder");
    is_shown_as_text(&run(&mut straingauge(["load", "http://127.0.0.1:9/", "--scenario", path])).exits_with(2));
    is_shown_as_text(&run(&mut straingauge(["load", HOSTILE])).exits_with(2));
    is_shown_as_text(&run(&mut straingauge(["watch", &format!(":{HOSTILE}")])).exits_with(2));
    is_shown_as_text(&run(&mut straingauge(["load", "http://127.0.0.1:9/", &format!("--{HOSTILE}")])).exits_with(2));
}
