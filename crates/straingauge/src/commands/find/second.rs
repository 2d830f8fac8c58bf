//! `find --compare-with` and `--beside`: what is measured in turn with the server as it is.

use crate::cli::FindOptions;
use crate::defaults;
use crate::failure::wrong_usage;
use crate::plan::RunOptions;
use crate::tools;
use anyhow::{Context, Result, bail};
use record::Outside;
use std::process::Command;
use std::time::Duration;

/// The second side.
pub(in crate::commands) enum What {
    /// Another server, by its command.
    Server(Vec<String>),
    /// The same server, with a command that runs beside it.
    Beside {
        command: Vec<String>,
        /// The time that it gets to start or to end.
        settle: Duration,
    },
}

/// The option that asks for a second side.
pub(super) fn option(options: &FindOptions) -> Option<&'static str> {
    match (&options.compare_with, &options.beside) {
        (Some(_), _) => Some("--compare-with"),
        (None, Some(_)) => Some("--beside"),
        (None, None) => None,
    }
}

/// The second side that the options ask for. `first`: the server's command, empty if it runs already.
pub(super) fn what(options: &FindOptions, drive: &RunOptions) -> Result<Option<What>> {
    let (first, is_elsewhere) = (&drive.options.server.command, drive.options.fleet.server_with.is_some());
    Ok(match (&options.compare_with, &options.beside) {
        (Some(_), Some(_)) => {
            return Err(wrong_usage("--compare-with and --beside are two comparisons: leave one of them out"));
        }
        (Some(with), None) => Some(What::Server(command(with, first, is_elsewhere)?)),
        (None, Some(beside)) => {
            let settle = options.settle.map_or(defaults::SETTLE, |time| time.0);
            Some(What::Beside { command: words("--beside", beside, "the words of a command")?, settle })
        }
        (None, None) => None,
    })
}

/// The words of a command that is quoted as for a shell.
fn words(option: &str, typed: &str, wanted: &str) -> Result<Vec<String>> {
    match shlex::split(typed) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "{option} '{}' is no command: give {wanted} as for a shell",
            Outside::new(typed, 120)
        ))),
    }
}

/// The second server's command: `scale` means the first server under scalable select. The tool of that name is looked
/// for on the server's machine, and asked here whether it applies.
pub(super) fn command(with: &str, first: &[String], is_elsewhere: bool) -> Result<Vec<String>> {
    if first.is_empty() {
        return Err(wrong_usage("--compare-with needs the first server, too: add -- SERVER ..."));
    }
    if with.trim() == "scale" {
        let mut program = "straingauge".to_string();
        if !is_elsewhere {
            applies(first)?;
            let own = std::env::current_exe().context("cannot find this program's own file")?;
            program = own.into_os_string().into_string().map_err(|_| {
                wrong_usage(
                    "this program lies in a folder whose name is no text: put it elsewhere for --compare-with scale",
                )
            })?;
        }
        return Ok([program, "scale".into(), "--".into()].into_iter().chain(first.iter().cloned()).collect());
    }
    words("--compare-with", with, "'scale', or the second server's words")
}

/// Whether scalable select applies to a server: otherwise the tool's reason.
fn applies(server: &[String]) -> Result<()> {
    let program = tools::program("scale").context("--compare-with scale")?;
    let said = Command::new(&program).args(["--check", "--"]).args(server).output();
    let said = said.with_context(|| format!("{} cannot be started", program.display()))?;
    let why = String::from_utf8_lossy(&said.stderr);
    let why = why.lines().last().unwrap_or("straingauge scale --check failed");
    if !said.status.success() {
        bail!("{}", Outside::new(why.trim_start_matches("straingauge scale: "), 1000));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_is_read_as_a_shell_would() {
        let first = vec!["nginx".to_string()];
        let words = command("nginx -c '/a b/c.conf' -g \"daemon off;\"", &first, false).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon off;"]);
        assert_eq!(command("scale", &first, true).unwrap(), ["straingauge", "scale", "--", "nginx"]);
        for wrong in ["", "  ", "nginx 'open"] {
            assert!(command(wrong, &first, false).is_err(), "{wrong}");
        }
        assert!(command("nginx", &[], false).unwrap_err().to_string().contains("-- SERVER"));
    }
}
