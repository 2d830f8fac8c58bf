use super::*;

pub(super) const RULE: Rule = Rule {
    id: "slow-file",
    cause: "the server waits for a file or a slow log",
    evidence: "the account: requests whose threads were blocked while they wrote, read or synced a file or wrote to a \
               full pipe or to a socket that answers nothing, by load",
    threshold: "most of the requests added by load (at least 1) waited there, or for threads without idle time \
                (criterion `saturation_ratio`) that mostly waited there; a possibility below 40 % of the added \
                requests",
    refuted_by: "throughput stays the same with the log on /dev/shm",
    remedy: "`findmnt -T FILE`; for writes: buffer them, or use another device or a faster reader; for syncs: one for \
             several requests; for reads: more memory for the file cache, or more threads; for opens: keep files open",
    source: "Almeida, Almeida and Yates (1996), table 5: logging took most of a small request's elapsed time",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge: |evidence| evidence.limit_by("slow-file"),
};

/// Parts of the names of calls that name a file by its path.
const OF_PATHS: [&str; 5] = ["open", "stat", "access", "readlink", "getdents"];

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let is_of_file = |wait: &WaitLevel| matches!(wait.kind, WaitKind::File | WaitKind::Pipe);
    let (group, wait) = reading.high.most_waiting(is_of_file)?;
    full_of(reading, group, wait)
}

pub fn full_of(reading: &AccountRange<'_>, group: &GroupLevel, wait: &WaitLevel) -> Option<FoundLimit> {
    let before = reading.low.blocked_at(&[wait.kind], &wait.place);
    let call = wait.place.split(' ').next().unwrap_or("");
    let path = wait.place.split_once(' ').map_or("", |(_, path)| path);
    let what = match wait.kind {
        WaitKind::Pipe if path.is_empty() => "the reader of a pipe".to_string(),
        WaitKind::Pipe => format!("the reader of {path}"),
        _ => "a file".into(),
    };
    let advice = match call {
        _ if wait.kind == WaitKind::Pipe => {
            "a reader that keeps up, or writes that are buffered, in another thread or without waiting"
        }
        call if call.contains("sync") => "one sync for several requests, or a faster device",
        call if OF_PATHS.iter().any(|part| call.contains(part)) => {
            "files that stay open (nginx `open_file_cache`), a faster file system, or fewer programs that check each \
             opened file (an antivirus)"
        }
        call if call.contains("read") => {
            "more memory for the cache of files, a faster device, or more threads that read"
        }
        _ => "buffered writes (nginx `access_log FILE combined buffer=64k flush=1s`), or another device",
    };
    let is_on_disk = path.starts_with('/') && !path.starts_with("/dev/");
    let commands = if is_on_disk { vec![format!("findmnt -T {}", quoted(path))] } else { Vec::new() };
    let device = commands.first().map_or(String::new(), |command| format!("; `{command}` names its device"));
    let because = format!(
        "The server waits for {what}: at {} {:.2} of {} were blocked in {} at any time ({}), \
         {before:.2} at {}; {:.2} ran.",
        reading.at_high(),
        wait.threads,
        group.label(),
        wait.place,
        wait.rate_and_length(),
        reading.at_low(),
        group.running,
    );
    FoundLimit::new(RULE.id, because, format!("To try: {advice}{device}."), &commands)
}
