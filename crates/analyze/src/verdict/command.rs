//! The server's command, as it is named in remedies.

use crate::text::plain;
use record::RunDir;

/// The command behind `--`, quoted for a shell; else that of the process that was watched; else `SERVER ...`.
pub fn of_server(run: &RunDir) -> String {
    match (&run.record.scenario.server, run.record.server_facts.get("command")) {
        (Some(server), _) => plain(&server.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "), 300),
        (None, Some(command)) => plain(command, 300),
        (None, None) => "SERVER ...".into(),
    }
}

/// The server's process, or `PID`.
pub fn server_pid(run: &RunDir) -> String {
    let pid = run.record.server_facts.get("pid").filter(|pid| pid.chars().all(|c| c.is_ascii_digit()));
    // A server that was started for the run is gone with it.
    pid.filter(|_| run.record.scenario.server.is_none()).cloned().unwrap_or_else(|| "PID".into())
}

/// As a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    plain(&format!("'{}'", word.replace('\'', "'\\''")), 300)
}
