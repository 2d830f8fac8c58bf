//! `find --compare-with` and `--beside`: what is measured in turn with the server as it is.

use crate::cli::FindOptions;
use crate::defaults;
use crate::failure::wrong_usage;
use crate::plan::RunOptions;
use anyhow::{Context, Result, bail};
use record::Outside;
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

/// The second server's command: `scale` means the first server under scalable select, which another machine's straingauge
/// looks for there.
pub(super) fn command(with: &str, first: &[String], is_elsewhere: bool) -> Result<Vec<String>> {
    if first.is_empty() {
        return Err(wrong_usage("--compare-with needs the first server, too: add -- SERVER ..."));
    }
    if with.trim() == "scale" && is_elsewhere {
        return Ok(["straingauge", "scale", "--"].map(String::from).into_iter().chain(first.iter().cloned()).collect());
    }
    if with.trim() == "scale" {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let program = program.into_os_string().into_string().map_err(|_| {
            wrong_usage(
                "this program lies in a folder whose name is no text: put it elsewhere for --compare-with scale",
            )
        })?;
        let found = crate::scale::target::inspect(&crate::scale::target::find_program(&first[0])?)?;
        if let Err(hindrance) = found {
            bail!("scalable select does not apply: {hindrance}");
        }
        crate::scale::library::find(None)?;
        let words = [program, "scale".into(), "--".into()];
        return Ok(words.into_iter().chain(first.iter().cloned()).collect());
    }
    words("--compare-with", with, "'scale', or the second server's words")
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
