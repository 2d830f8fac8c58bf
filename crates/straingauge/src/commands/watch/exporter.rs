//! The Prometheus endpoint: `GET /metrics`, text format 0.0.4, without keep-alive. One thread waits for all connections at
//! once, so one that says nothing holds up no other; reads are bounded, and so is the number of connections: where it is reached,
//! the oldest gives way to the newest. Whoever scrapes it is trusted as little as anybody else.

use anyhow::{Context, Result};
use observe::watch::WatchOptions;
use record::Doubt;
use record::watch::{Log2Histogram, Reading, bucket_end_ns};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAX_HEAD_BYTES: usize = 8 << 10;
/// A connection that has not been answered after this long is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once.
const MOST_CLIENTS: usize = 64;

type SharedPage = Arc<Mutex<Arc<str>>>;

/// The endpoint; its thread ends with the process.
pub struct Exporter {
    listener: Option<TcpListener>,
    page: SharedPage,
}

impl Exporter {
    /// Listens; connections wait until [`Exporter::serve`].
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot serve metrics on {address}"))?;
        listener.set_nonblocking(true)?;
        eprintln!("metrics on http://{}/metrics", listener.local_addr()?);
        Ok(Exporter { listener: Some(listener), page: Arc::new(Mutex::new("".into())) })
    }

    /// Answers from now on. Privileges belong to threads, so this one is begun when they are given up.
    pub fn serve(&mut self) -> Result<()> {
        if let Some(listener) = self.listener.take() {
            let page = Arc::clone(&self.page);
            std::thread::Builder::new().name("metrics".into()).spawn(move || serve(&listener, &page))?;
        }
        Ok(())
    }

    /// Replaces what is served.
    pub fn publish(&self, reading: &Reading, options: &WatchOptions, doubts: &[Doubt]) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page(reading, options, doubts).into();
    }
}

/// A connection: its request as far as it was read, then its answer as far as it is to be written.
struct Client {
    stream: TcpStream,
    since: Instant,
    head: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
}

impl Client {
    /// Reads or writes what can be without waiting. Returns whether there is more to do.
    fn step(&mut self, page: &SharedPage) -> std::io::Result<bool> {
        let mut chunk = [0; 1024];
        while self.answer.is_none() {
            match self.stream.read(&mut chunk)? {
                0 => return Ok(false),
                count => self.head.extend_from_slice(&chunk[..count]),
            }
            if self.head.windows(4).any(|window| window == b"\r\n\r\n") {
                let page = Arc::clone(&page.lock().unwrap_or_else(PoisonError::into_inner));
                self.answer = Some((answer(&self.head, &page), 0));
            } else if self.head.len() > MAX_HEAD_BYTES {
                return Ok(false);
            }
        }
        while let Some((bytes, written)) = &mut self.answer {
            if *written == bytes.len() {
                break;
            }
            *written += self.stream.write(&bytes[*written..])?;
        }
        Ok(false)
    }
}

fn serve(listener: &TcpListener, page: &SharedPage) {
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        wait(listener, &clients);
        loop {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if clients.len() == MOST_CLIENTS {
                        clients.pop_front();
                    }
                    clients.push_back(Client { stream, since: Instant::now(), head: Vec::new(), answer: None });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Out of file descriptors: back off, and make room.
                    clients.pop_front();
                    std::thread::sleep(Duration::from_millis(100));
                    break;
                }
            }
        }
        clients.retain_mut(|client| {
            let is_open = match client.step(page) {
                Ok(is_open) => is_open,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
            is_open && client.since.elapsed() < PATIENCE
        });
    }
}

/// Sleeps until a connection comes, one can go on, or the oldest has had its time.
fn wait(listener: &TcpListener, clients: &VecDeque<Client>) {
    let poll = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
    let mut fds = vec![poll(listener.as_raw_fd(), libc::POLLIN)];
    fds.extend(clients.iter().map(|client| {
        poll(client.stream.as_raw_fd(), if client.answer.is_some() { libc::POLLOUT } else { libc::POLLIN })
    }));
    let timeout_ms = clients
        .front()
        .map_or(-1, |oldest| PATIENCE.saturating_sub(oldest.since.elapsed()).as_millis() as libc::c_int + 1);
    // SAFETY: `fds` is a live array of that many; its descriptors are open. What became ready is found out by trying.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}

fn answer(head: &[u8], page: &str) -> Vec<u8> {
    let is_known = head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?");
    let (status, body) = if is_known { ("200 OK", page) } else { ("404 Not Found", "see /metrics\n") };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP straingauge_{name} {help}\n# TYPE straingauge_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "straingauge_{name}{{{}{comma}{labels}}} {value}", self.labels);
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    fn maybe(&mut self, name: &str, kind: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.one(name, kind, help, value as f64);
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Log2Histogram, sum_ns: u64) {
        let mut seen = 0;
        // Below a microsecond and beyond half a minute nobody looks for a bound of his own.
        for (bucket, count) in histogram.0.iter().enumerate() {
            seen += count;
            if (4..30).contains(&bucket) {
                let end = bucket_end_ns(bucket) as f64 / 1e9;
                self.sample(&format!("{name}_bucket"), &format!("{labels},le=\"{end}\""), seen as f64);
            }
        }
        self.sample(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), seen as f64);
        self.sample(&format!("{name}_sum"), labels, sum_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, seen as f64);
    }
}

/// The page for one reading. Label values are this program's own words.
pub fn page(reading: &Reading, options: &WatchOptions, doubts: &[Doubt]) -> String {
    let mut page = Page { text: String::new(), labels: format!("port=\"{}\"", options.port) };
    let classes: Vec<String> = options.classes.iter().map(|class| format!("class=\"{}\"", class.name)).collect();
    let totals = || classes.iter().zip(&reading.classes);
    if !reading.classes.is_empty() {
        page.family("requests_total", "counter", "Requests answered, by size class of the response.");
        totals().for_each(|(label, class)| page.sample("requests_total", label, class.requests as f64));
        page.family("request_bytes_total", "counter", "Bytes of request read by the server.");
        totals().for_each(|(label, class)| page.sample("request_bytes_total", label, class.bytes_in as f64));
        page.family("response_bytes_total", "counter", "Bytes of response written by the server.");
        totals().for_each(|(label, class)| page.sample("response_bytes_total", label, class.bytes_out as f64));
        page.family("request_cpu_seconds_total", "counter", "CPU time charged to requests.");
        totals().for_each(|(label, class)| page.sample("request_cpu_seconds_total", label, class.cpu_ns as f64 / 1e9));
        page.family(
            "request_elapsed_seconds",
            "histogram",
            "First read to the departure of the response's last segment.",
        );
        totals().for_each(|(label, class)| {
            page.histogram("request_elapsed_seconds", label, &class.elapsed, class.elapsed_ns)
        });
    }
    if let Some(open) = &reading.open {
        page.one("requests_waiting", "gauge", "Requests read and not answered yet.", open.waiting as f64);
        page.one("requests_sending", "gauge", "Responses not acknowledged in full yet.", open.sending as f64);
    }
    if reading.phases.iter().any(|phases| phases.requests > 0) {
        page.family("phase_seconds", "gauge", "Mean time of a request's phase, from windows; clock is elapsed or cpu.");
        for (label, phases) in classes.iter().zip(&reading.phases) {
            for (phase, name) in ["parse", "process", "log"].into_iter().enumerate() {
                for (clock, estimate) in [("elapsed", phases.elapsed_ns[phase]), ("cpu", phases.cpu_ns[phase])] {
                    if let Some(estimate) = estimate {
                        page.sample(
                            "phase_seconds",
                            &format!("{label},phase=\"{name}\",clock=\"{clock}\""),
                            estimate.mean / 1e9,
                        );
                    }
                }
            }
        }
    }
    let connections = &reading.connections;
    page.family("connections", "gauge", "Sockets of the port by TCP state.");
    for (state, count) in &connections.states {
        page.sample("connections", &format!("state=\"{state}\""), *count as f64);
    }
    if let Some(counted) = &connections.counted {
        page.one("connections_accepted_total", "counter", "Connections established.", counted.accepted as f64);
        page.one("connections_closed_total", "counter", "Connections closed.", counted.closed as f64);
        page.one(
            "connections_aborted_total",
            "counter",
            "Connections ended by a reset or a timeout.",
            counted.aborted as f64,
        );
        page.maybe("retransmits_total", "counter", "Segments retransmitted by the server.", counted.retransmits);
        page.maybe("resets_sent_total", "counter", "Resets sent.", counted.resets_sent);
        page.maybe("resets_received_total", "counter", "Resets received.", counted.resets_received);
    }
    page.maybe("accept_queue", "gauge", "Connections waiting to be accepted.", connections.accept_queue);
    page.maybe("accept_queue_limit", "gauge", "How many may wait.", connections.accept_queue_limit);
    page.maybe(
        "port_drops_total",
        "counter",
        "Connections and SYNs dropped by the port's listeners for a full queue.",
        connections.port_drops,
    );
    page.maybe(
        "listen_overflows_total",
        "counter",
        "Connections dropped for a full accept queue, whole namespace.",
        connections.listen_overflows,
    );
    if let Some(charged) = reading.charged() {
        page.family("cpu_seconds_total", "counter", "CPU time of the server's processes by what it was spent on.");
        for (part, ns) in [
            ("requests", charged.requests_ns),
            ("connect", charged.connect_ns),
            ("between", charged.between_ns),
            ("elsewhere", charged.elsewhere_ns),
        ] {
            page.sample("cpu_seconds_total", &format!("part=\"{part}\""), ns as f64 / 1e9);
        }
    }
    if let Some(cpu) = &reading.cpu {
        page.one(
            "server_cpu_seconds_total",
            "counter",
            "CPU time of the server's processes by the scheduler.",
            cpu.group_ns as f64 / 1e9,
        );
        page.one(
            "server_resident_bytes",
            "gauge",
            "Resident memory of the server's processes.",
            cpu.resident_bytes as f64,
        );
        page.one("server_processes", "gauge", "Processes of the server.", cpu.processes as f64);
    }
    if let Some(added) = &reading.cost.added {
        page.one(
            "watch_added_cpu_seconds_total",
            "counter",
            "CPU time that watching added, by event counts and calibration.",
            added.added_ns / 1e9,
        );
    }
    page.one(
        "watch_own_cpu_seconds_total",
        "counter",
        "CPU time of this process.",
        reading.cost.own_cpu_ns as f64 / 1e9,
    );
    if let Some(losses) = &reading.losses {
        page.one(
            "watch_lost_requests_total",
            "counter",
            "Requests lost by the bounded table.",
            losses.displaced_open as f64,
        );
    }
    page.one("watch_doubts", "gauge", "Reasons not to trust these figures.", doubts.len() as f64);
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watch::ClassTotals;

    #[test]
    fn a_page_has_one_type_line_per_family_and_numbers_only() {
        let options = WatchOptions::of_port(80);
        let mut class = ClassTotals { requests: 3, timed: 3, elapsed_ns: 3000, ..ClassTotals::default() };
        class.elapsed.0[5] = 3;
        let reading = Reading { classes: vec![class; options.classes.count()], ..Reading::default() };
        let text = page(&reading, &options, &[]);
        let mut types = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(types.insert(rest.split(' ').next().unwrap().to_string()), "{line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(name.starts_with("straingauge_") && name.ends_with('}'), "{line}");
            }
        }
        assert!(
            text.contains("straingauge_request_elapsed_seconds_bucket{port=\"80\",class=\"<10.0 KiB\",le=\"+Inf\"} 3")
        );
    }

    #[test]
    fn what_is_not_measured_has_no_sample() {
        let text = page(&Reading::default(), &WatchOptions::of_port(80), &[]);
        let measured: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(measured.len(), 2, "{text}");
        assert!(measured[0].starts_with("straingauge_watch_own_cpu_seconds_total"), "{text}");
        assert!(measured[1].starts_with("straingauge_watch_doubts"), "{text}");
    }

    /// No wait in this test can end but by an answer: none of the idle connections ever says or closes anything.
    #[test]
    fn idle_connections_hold_up_no_scrape() {
        let mut exporter = Exporter::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = exporter.listener.as_ref().expect("it listens").local_addr().expect("its address");
        exporter.publish(&Reading::default(), &WatchOptions::of_port(80), &[]);
        exporter.serve().expect("a thread");
        let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let began = Instant::now();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            assert!(began.elapsed() < PATIENCE, "it did not wait for the idle ones to be given up");
        }
        drop(idle);
    }
}
