//! A machine that cannot execute the straingauge on it, as it is of another architecture.

use crate::process;
use std::env::consts::ARCH;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

/// How long the machine may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest name of an architecture.
const MOST_BYTES: u64 = 32;

/// What to do about a worker's command whose program could not be executed.
pub fn advice(command: &str) -> String {
    match asking(command).and_then(|command| answer(&command)) {
        Some(theirs) if theirs != ARCH => format!(
            "its machine is {theirs}, this one {ARCH}, and it cannot execute the straingauge there: install one that \
             is built for {theirs}"
        ),
        _ => "it cannot execute the straingauge there: is that an executable file, and built for what 'uname -m' says \
              there?"
            .into(),
    }
}

/// The same command with `uname -m` in place of the worker's program and its options.
fn asking(command: &str) -> Option<String> {
    let (before, after) = command.rsplit_once(" --worker")?;
    let (before, _) = before.trim_end().rsplit_once(char::is_whitespace)?;
    let begin = before.trim_end().rfind(|letter: char| letter.is_whitespace() || "'\"".contains(letter))? + 1;
    let end = after.rfind(['\'', '"']).map_or("", |at| &after[at..]);
    Some(format!("{}uname -m{end}", &before[..begin]))
}

fn answer(command: &str) -> Option<String> {
    let mut child = process::start(Command::new("sh").args(["-c", command])).ok()?;
    drop(child.stdin.take());
    let mut said = String::new();
    if process::ends_within(&mut child, PATIENCE) {
        child.stdout.take()?.take(MOST_BYTES).read_to_string(&mut said).ok()?;
    }
    process::kill(&mut child);
    let is_name =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Some(said.trim().to_string()).filter(|text| is_name(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_asked_in_the_same_way_as_its_worker_is_started() {
        for (command, wanted) in [
            ("ssh c1 straingauge load --worker", "ssh c1 uname -m"),
            ("ssh c1 /opt/straingauge  load --worker --source-interface eth0", "ssh c1 uname -m"),
            ("ssh c1 'cd /opt; ./straingauge load --worker'", "ssh c1 'cd /opt; uname -m'"),
            ("ssh c1 \"/opt/straingauge watch --worker :80 -- nginx\"", "ssh c1 \"uname -m\""),
        ] {
            assert_eq!(asking(command).as_deref(), Some(wanted));
        }
        for command in ["straingauge load --worker", "ssh c1 sg", "", " --worker"] {
            assert_eq!(asking(command), None, "{command}");
        }
    }

    #[test]
    fn an_answer_is_one_word_or_none() {
        assert_eq!(answer("echo aarch64").as_deref(), Some("aarch64"));
        for command in ["echo a b", "exit 3", "printf 'a\\033'"] {
            assert_eq!(answer(command), None, "{command}");
        }
    }
}
