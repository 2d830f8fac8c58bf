//! A job for the guest after it was resumed. The host writes it, the guest reads it.

use std::fmt::Write;

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// One-way delay of the path.
    pub delay_us: u64,
    /// The work over the path.
    pub work: Work,
}

/// The work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// The microbenchmark.
    Bench(Bench),
    /// A server, and a client that loads it.
    Server(Server),
}

/// A server sends full segments over this many connections in turn at a constant rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bench {
    /// Open connections.
    pub connections: u64,
    /// Segments per second over all connections.
    pub rate_per_sec: u64,
    /// Segments before the count begins.
    pub warmup_packets: u64,
    /// Segments that are counted.
    pub packets: u64,
}

/// A program of the host, with a load of straingauge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Port at which the server listens.
    pub port: u16,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The client and its arguments.
    pub load: Vec<String>,
    /// Number of connections that the load has opened when its warm-up begins.
    pub opened: u64,
    /// Time from then to the start of the count.
    pub warmup_ms: u64,
    /// Length of the count in guest time.
    pub window_ms: u64,
}

/// Maximum length of a line, so that a broken file is not read endlessly.
const LONGEST: usize = 1 << 16;

impl Job {
    /// The job as lines `word value`, ending with `end`.
    pub fn to_text(&self) -> String {
        let mut text = format!("delay_us {}\n", self.delay_us);
        let mut line = |word: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{word} {value}");
        };
        match &self.work {
            Work::Bench(bench) => {
                line("connections", &bench.connections);
                line("rate", &bench.rate_per_sec);
                line("warmup_packets", &bench.warmup_packets);
                line("packets", &bench.packets);
            }
            Work::Server(server) => {
                line("port", &server.port);
                line("opened", &server.opened);
                line("warmup_ms", &server.warmup_ms);
                line("window_ms", &server.window_ms);
                server.command.iter().for_each(|word| line("command", &word.escape_default()));
                server.load.iter().for_each(|word| line("load", &word.escape_default()));
            }
        }
        text.push_str("end\n");
        text
    }

    /// Reads the text of [`Job::to_text`].
    pub fn from_text(text: &str) -> Result<Job, String> {
        let (mut numbers, mut command, mut load) = (std::collections::HashMap::new(), Vec::new(), Vec::new());
        for line in text.lines() {
            if line == "end" {
                let number = |word: &str| numbers.get(word).copied().ok_or(format!("the job has no {word}"));
                let work = if command.is_empty() {
                    Work::Bench(Bench {
                        connections: number("connections")?,
                        rate_per_sec: number("rate")?,
                        warmup_packets: number("warmup_packets")?,
                        packets: number("packets")?,
                    })
                } else {
                    Work::Server(Server {
                        port: u16::try_from(number("port")?).map_err(|_| "the port of the job is larger than 65535")?,
                        opened: number("opened")?,
                        command,
                        load,
                        warmup_ms: number("warmup_ms")?,
                        window_ms: number("window_ms")?,
                    })
                };
                return Ok(Job { delay_us: number("delay_us")?, work });
            }
            let (word, value) = line.split_once(' ').ok_or("a line of the job has no value")?;
            match word {
                _ if value.len() > LONGEST => return Err("a line of the job is too long".into()),
                "command" => command.push(unescape(value)?),
                "load" => load.push(unescape(value)?),
                _ => {
                    numbers.insert(word.to_string(), value.parse().map_err(|_| format!("'{line}' has no number"))?);
                }
            }
        }
        Err("the job has no end".into())
    }
}

/// Reverses `str::escape_default`.
fn unescape(text: &str) -> Result<String, String> {
    let wrong = || "a word of the job cannot be read".to_string();
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match rest.next().ok_or_else(wrong)? {
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'n' => out.push('\n'),
            'u' => {
                let code: String = rest.by_ref().skip(1).take_while(|letter| *letter != '}').collect();
                let code = u32::from_str_radix(&code, 16).map_err(|_| wrong())?;
                out.push(char::from_u32(code).ok_or_else(wrong)?);
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_back_unchanged() {
        let bench = Bench { connections: 64, rate_per_sec: 8000, warmup_packets: 10, packets: 1000 };
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let server = Server {
            port: 80,
            opened: 7,
            command: words(&["/usr/sbin/nginx", "-g", "daemon off;\n\"ä\"\\"]),
            load: words(&["straingauge", ""]),
            warmup_ms: 5,
            window_ms: 6,
        };
        for work in [Work::Bench(bench), Work::Server(server)] {
            let job = Job { delay_us: 20_000, work };
            assert_eq!(Job::from_text(&job.to_text()), Ok(job));
        }
        assert!(Job::from_text("delay_us 1\n").unwrap_err().contains("no end"));
        assert!(Job::from_text("delay_us 1\nend\n").unwrap_err().contains("connections"));
        assert!(Job::from_text("delay_us x\nend\n").is_err());
    }
}
