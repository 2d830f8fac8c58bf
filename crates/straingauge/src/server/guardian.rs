//! Ends a server's processes when straingauge itself is killed and nothing else would.
//!
//! Inside namespaces the next run finds what a killed one left. Without them only the server's first process dies with
//! straingauge (parent death signal); its children, such as nginx's workers, would run on. The guardian is this program
//! again, in a separate session, reading a pipe whose other end only straingauge holds: a byte means that the server
//! was stopped, end of file without one that straingauge was killed. A command that runs beside the server has one in
//! any case.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

/// Environment variable of a command beside the server and of all that it starts: marks daemons that left its session.
pub const MARK: &str = "STRAINGAUGE_BESIDE";
/// The hidden command that runs this program as a guardian.
pub const COMMAND: &str = "guard-session";
/// A process that forks between the reading of the process table and the signal is caught in the next round.
const ROUNDS: u32 = 100;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);

/// A running guardian. Dropping it without [`Guardian::dismiss`] ends the session.
pub struct Guardian {
    process: Child,
    lifeline: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian for the session that the process `leader` leads, and for the processes with this value of
    /// [`MARK`].
    pub fn over(leader: u32, mark: Option<&str>) -> io::Result<Guardian> {
        let mut command = Command::new("/proc/self/exe");
        command.args([COMMAND, &leader.to_string()]).args(mark);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid is async-signal-safe and takes no pointers.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut process = command.spawn()?;
        let lifeline = process.stdin.take();
        Ok(Guardian { process, lifeline })
    }

    /// The server was stopped: nothing is left to do.
    pub fn dismiss(mut self) {
        if let Some(mut lifeline) = self.lifeline.take() {
            let _ = lifeline.write_all(b".");
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.process.wait();
    }
}

/// Runs as the guardian.
pub fn stand_guard(session: u32, mark: Option<&str>) -> ExitCode {
    let mut byte = [0u8; 1];
    let is_dismissed = loop {
        match io::stdin().read(&mut byte) {
            Ok(count) => break count > 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break false,
        }
    };
    if !is_dismissed {
        for _ in 0..ROUNDS {
            let members = members_of(session, mark);
            if members.is_empty() {
                break;
            }
            for pid in members {
                // SAFETY: kill takes no pointers; the session is the server's, which outlives its last member's exit.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(BETWEEN_ROUNDS);
        }
    }
    ExitCode::SUCCESS
}

/// The living processes of a session, and those with this value of [`MARK`].
pub fn members_of(session: u32, mark: Option<&str>) -> Vec<libc::pid_t> {
    let marked = mark.map(|mark| format!("{MARK}={mark}"));
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            is_living(&stat, |in_session| in_session == session || marked.as_ref().is_some_and(|mark| has(*pid, mark)))
        })
        .collect()
}

/// Whether a process was started with this variable in its environment.
fn has(pid: libc::pid_t, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
}

/// Reads a line of /proc/PID/stat: state, parent, group and session follow the name, which may contain anything. Asks
/// `is_member` about the session of a process that lives.
fn is_living(stat: &str, is_member: impl Fn(u32) -> bool) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_ascii_whitespace();
    let is_alive = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
    is_alive && fields.nth(2).and_then(|id| id.parse().ok()).is_some_and(is_member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_by_their_session_whatever_their_name() {
        let is_living_member = |stat: &str, wanted: u32| is_living(stat, |session| session == wanted);
        assert!(is_living_member("7 (a) S 1 2) S 1 5 40 0 -1", 40));
        assert!(!is_living_member("7 (nginx) S 1 40 5 0 -1", 40), "a group is not a session");
        assert!(!is_living_member("7 (nginx) Z 1 5 40 0 -1", 40), "a zombie has ended");
        assert!(!is_living_member("nonsense", 40));
    }
}
