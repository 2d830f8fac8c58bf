//! `find --live`: the report in a browser during the run. It is drawn between points, only if a browser has asked for
//! it, and so rarely that drawing takes little of the run's time. The serving thread sleeps until a request comes.

use crate::failure::wrong_usage;
use crate::serve::{HttpRequest, HttpServer, Response, Site, response};
use anyhow::{Context, Result};
use record::RunDir;
use record::lock;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum simultaneous connections; a browser opens up to six.
const MOST_CLIENTS: usize = 16;
/// Pause after drawing a report, as a multiple of the drawing time, so that drawing takes at most a twentieth of the
/// run.
const REST: u32 = 19;
const HTML: &str = "text/html; charset=utf-8";
/// The URL contains the token, so browsers must not cache pages or send the URL to others.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\n";

pub(super) struct LiveReport {
    server: HttpServer,
    site: Arc<Pages>,
    /// When the last report was drawn, and how long drawing took.
    drawn: Option<(Instant, Duration)>,
}

struct Pages {
    token: String,
    around: String,
    policy: String,
    now: Mutex<DrawnReport>,
    is_wanted: AtomicBool,
}

struct DrawnReport {
    report: Arc<str>,
    event: Arc<str>,
    number: u64,
    drawn: u64,
}

impl LiveReport {
    /// Starts serving on a loopback address, and prints the URL.
    pub fn begin(address: SocketAddr, url: &str) -> Result<LiveReport> {
        check(address)?;
        let cannot = || format!("cannot serve the live page on {address}");
        let mut server = HttpServer::bind(address, MOST_CLIENTS).with_context(cannot)?;
        let site = Arc::new(Pages {
            token: token().with_context(cannot)?,
            around: report::live::html(url),
            policy: report::live::policy(),
            now: Mutex::new(DrawnReport {
                report: report::live::waiting().into(),
                event: "".into(),
                number: 0,
                drawn: 0,
            }),
            is_wanted: AtomicBool::new(false),
        });
        server.serve("live", Arc::clone(&site))?;
        eprintln!("live page: http://{}/{}/", server.address(), site.token);
        Ok(LiveReport { server, site, drawn: None })
    }

    /// Sends the new progress to all followers, and draws the report again if it is time.
    pub fn show(&mut self, run: impl FnOnce() -> RunDir) {
        if !self.site.is_wanted.load(Ordering::Relaxed) && self.server.followers() == 0 {
            return;
        }
        let run = run();
        if self.drawn.is_none_or(|(at, took)| at.elapsed() >= took * REST) {
            self.site.is_wanted.store(false, Ordering::Relaxed);
            self.draw(&run);
        }
        self.tell(&run, false);
    }

    pub fn end(mut self, run: &RunDir) {
        if self.server.followers() > 0 {
            self.draw(run);
            self.tell(run, true);
        }
        self.server.end();
    }

    fn draw(&mut self, run: &RunDir) {
        let began = Instant::now();
        let page = report::page::html(run);
        self.drawn = Some((Instant::now(), began.elapsed()));
        let mut now = self.site.now();
        (now.report, now.drawn) = (page.into(), now.drawn + 1);
    }

    fn tell(&self, run: &RunDir, ended: bool) {
        let mut now = self.site.now();
        now.number += 1;
        now.event = report::live::event(run, now.number, now.drawn, ended).into();
        drop(now);
        self.server.wake();
    }
}

pub fn check(address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(wrong_usage(format!(
        "--live {address} would show the run to other machines: use a loopback address, e.g. 127.0.0.1:{}, and forward \
         its port (ssh -L) to see the page elsewhere",
        address.port()
    )))
}

/// 128 random bits.
pub fn token() -> Result<String> {
    let mut bits = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bits)).context("/dev/urandom")?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Pages {
    fn now(&self) -> MutexGuard<'_, DrawnReport> {
        lock(&self.now)
    }

    /// `None` without the token.
    fn place<'a>(&self, target: &'a str) -> Option<&'a str> {
        let (typed, place) = target.strip_prefix('/')?.split_once('/')?;
        // Compares all bytes, so that the time does not reveal the first wrong one.
        let differing = typed.bytes().zip(self.token.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
        (typed.len() == self.token.len() && differing == 0).then_some(place)
    }
}

impl Site for Pages {
    fn answer(&self, request: &HttpRequest<'_>) -> Response {
        let text = |status, body: &str| {
            Response::Whole(response(status, "text/plain; charset=utf-8", HEADERS, body.as_bytes()))
        };
        // Refuses DNS rebinding.
        if !request.host.is_some_and(is_loopback) {
            return text("403 Forbidden", "only 127.0.0.1 and localhost are served\n");
        }
        let page = |policy: &str, body: &str| {
            let headers = format!("{HEADERS}Content-Security-Policy: {policy}\r\n");
            Response::Whole(response("200 OK", HTML, &headers, body.as_bytes()))
        };
        let place = self.place(request.target);
        if place.is_some() {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
        match place {
            Some("") => page(&self.policy, &self.around),
            // The report has its own content security policy.
            Some("report.html") => page("frame-ancestors 'self'", &Arc::clone(&self.now().report)),
            Some("events") => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
                Response::Stream(format!("{head}{HEADERS}Connection: close\r\n\r\n").into_bytes())
            }
            _ => text("404 Not Found", "not found\n"),
        }
    }

    fn news(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        let now = self.now();
        (now.number > seen).then(|| (now.number, now.event.as_bytes().to_vec()))
    }
}

/// Whether a `Host` header is a loopback name. The port may be a forwarded one.
pub fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.is_empty() => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
