//! Facts about programs that are known by the name of their file.

use record::RunRecord;

/// Beginning of the file's name; whether a process of it runs one thread at a time; whether its heap grows for long
/// before it is collected; the setting with which it uses another CPU, empty if none is known.
type Program = (&'static str, bool, bool, &'static str);

const PROGRAMS: [Program; 15] = [
    ("nginx", false, false, "worker_processes 2;"),
    ("haproxy", false, false, "nbthread 2"),
    ("envoy", false, false, "--concurrency 2"),
    ("memcached", false, false, "-t 2"),
    ("redis-server", false, false, "a second instance, with half of the keys"),
    ("lighttpd", false, false, "server.max-worker = 2"),
    ("gunicorn", false, false, "--workers 2"),
    ("uvicorn", false, false, "--workers 2"),
    ("python", true, false, "two processes (gunicorn or uvicorn --workers 2)"),
    ("pypy", true, false, "two processes (gunicorn or uvicorn --workers 2)"),
    ("ruby", true, true, "two processes (Puma --workers 2)"),
    ("node", false, true, "two processes (the module cluster, or pm2 start -i 2)"),
    ("java", false, true, ""),
    ("dotnet", false, true, ""),
    ("beam", false, true, ""),
];

/// The name of the file that the server's process runs; empty where it is not known.
pub fn executable(record: &RunRecord) -> &str {
    record.server_facts.get("executable").and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

fn known(record: &RunRecord) -> Option<&'static Program> {
    PROGRAMS.iter().find(|(name, ..)| executable(record).starts_with(name))
}

/// How the server's program names the functions that it compiles at run time, a sentence.
pub fn names_by(record: &RunRecord) -> &'static str {
    match executable(record) {
        "beam.smp" => " Names: `erl +JPperf true`.",
        "dotnet" => " Names: DOTNET_PerfMapEnabled=1 in its environment.",
        "java" => " Names: `jcmd PID Compiler.perfmap` while it runs.",
        "node" => " Names: `node --perf-basic-prof`.",
        "ruby" => " Names: `ruby --yjit-perf=map`.",
        _ => " Names: if the program writes /tmp/perf-PID.map.",
    }
}

/// Whether the server's program is an interpreter that runs one thread of a process at a time. Free-threaded Python
/// ends in `t`.
pub fn runs_one_thread_at_a_time(record: &RunRecord) -> bool {
    known(record).is_some_and(|(_, is_one, ..)| *is_one) && !executable(record).ends_with('t')
}

/// Whether the server's heap grows for long before it is collected.
pub fn collects_late(record: &RunRecord) -> bool {
    known(record).is_some_and(|(_, _, is_late, _)| *is_late)
}

/// The program, and the setting with which it uses another CPU.
pub fn another_cpu(record: &RunRecord) -> Option<(&'static str, &'static str)> {
    known(record).map(|(name, .., setting)| (*name, *setting)).filter(|(_, setting)| !setting.is_empty())
}
