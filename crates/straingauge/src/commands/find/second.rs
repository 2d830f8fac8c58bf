//! `find --compare-with`: the command of the second server.

use crate::failure::wrong_usage;
use anyhow::{Context, Result, bail};
use record::Outside;

/// The second server's command: `scale` means the first server under scalable select.
pub(super) fn command(with: &str, first: &[String]) -> Result<Vec<String>> {
    if first.is_empty() {
        return Err(wrong_usage("--compare-with needs the first server, too: add -- SERVER ..."));
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
    match shlex::split(with) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "--compare-with '{}' is no command: give 'scale', or the second server's words as for a shell",
            Outside::new(with, 120)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_is_read_as_a_shell_would() {
        let first = vec!["nginx".to_string()];
        let words = command("nginx -c '/a b/c.conf' -g \"daemon off;\"", &first).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon off;"]);
        for wrong in ["", "  ", "nginx 'open"] {
            assert!(command(wrong, &first).is_err(), "{wrong}");
        }
        assert!(command("nginx", &[]).unwrap_err().to_string().contains("-- SERVER"));
    }
}
