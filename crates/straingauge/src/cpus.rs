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
