//! Lists of CPUs (`0,2-3`), and the split between client and server.

/// Parses a list such as `0`, `0,2`, `1-3,6`.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of CPUs: write e.g. 0, 0,2 or 1-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= libc::CPU_SETSIZE as usize {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Splits the allowed CPUs between client and server. The server gets the upper half, at least one. On a machine with
/// one CPU both share it, and the run carries a doubt.
pub fn split(allowed: &[usize]) -> (Vec<usize>, Vec<usize>) {
    if allowed.len() < 2 {
        return (allowed.to_vec(), allowed.to_vec());
    }
    let (client, server) = allowed.split_at(allowed.len() / 2);
    (client.to_vec(), server.to_vec())
}

/// Whether the server is pinned to CPUs that the client does not use.
pub fn are_apart(client: &[usize], server: &[usize]) -> bool {
    !server.is_empty() && !server.iter().any(|cpu| client.contains(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["0", "0,2", "1-3,6"] {
            assert_eq!(record::machine::cpu_list(&parse_list(text).unwrap()), text);
        }
        for text in ["", "a", "3-1", "-1", "0,,1", "99999"] {
            assert!(parse_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn client_and_server_get_different_cpus_if_there_are_two() {
        assert_eq!(split(&[0, 1]), (vec![0], vec![1]));
        assert_eq!(split(&[0, 1, 2]), (vec![0], vec![1, 2]));
        assert_eq!(split(&[3]), (vec![3], vec![3]));
    }
}
