//! Measures the cost of a path and its lateness at a given rate, with datagrams from client to server that are paced in
//! steps of 100 us. Prints one line of JSON. Needs root. bench/wan uses it.
//!
//! usage: path_cost RATE_PER_SEC BYTES DELAY_MS SECONDS [netem|tun]

use record::{PathMechanism, PathPlan};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use wan::{NamespacePair, PairPlan};

const STEP: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<f64, String> {
        let word = words.get(at).ok_or("usage: path_cost RATE_PER_SEC BYTES DELAY_MS SECONDS [netem|tun]")?;
        word.parse().map_err(|_| format!("'{word}' is not a number"))
    };
    let (rate, bytes, delay_ms, seconds) = (number(0)?, number(1)? as usize, number(2)?, number(3)?);
    let mechanism = match words.get(4).map(String::as_str) {
        Some("netem") => PathMechanism::Netem,
        Some("tun") => PathMechanism::TunDelayLine,
        _ => PathMechanism::Other,
    };
    // The delay line runs on the first CPU and the sender on the last, as client and server do in a run.
    let last = record::machine::online_cpus() - 1;
    let path = PathPlan { delay_ns: (delay_ms * 1e6) as u64, mechanism, ..PathPlan::default() };
    let pair = NamespacePair::create(&PairPlan {
        server_cpus: vec![last],
        client_cpus: vec![0],
        path,
        has_known_addresses: true,
    })?;
    wan::pin(&[last])?;
    let receiver = pair
        .client_namespace()
        .run_inside(|| Ok(UdpSocket::bind((pair.client_addr_v4(), 0)).expect("a new namespace has free ports")))?;
    let sender = pair
        .server_namespace()
        .run_inside(|| Ok(UdpSocket::bind((pair.server_addr_v4(), 0)).expect("a new namespace has free ports")))?;
    sender.connect(receiver.local_addr()?)?;
    // SAFETY: this prctl takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    let payload = vec![0u8; bytes];
    let meter = pair.path_meter();
    meter.take();
    let began = Instant::now();
    let mut sent = 0u64;
    while began.elapsed().as_secs_f64() < seconds {
        let wanted = (began.elapsed().as_secs_f64() * rate) as u64;
        while sent < wanted {
            let _ = sender.send(&payload);
            sent += 1;
        }
        std::thread::sleep(STEP);
    }
    let elapsed = began.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs_f64(delay_ms / 1e3 + 0.2));
    let tally = meter.take();
    let late_us =
        |quantile| tally.lateness.as_ref().and_then(|late| late.quantile_ns(quantile)).map(|nanos| nanos as f64 / 1e3);
    let line = serde_json::json!({
        "mechanism": pair.path().mechanism,
        "asked_per_sec": rate,
        "bytes": bytes,
        "delay_ms": delay_ms,
        "sent_per_sec": sent as f64 / elapsed,
        "delivered_per_sec": tally.packets as f64 / elapsed,
        "dropped": tally.dropped,
        "lateness_p50_us": late_us(0.5),
        "lateness_p99_us": late_us(0.99),
        "lateness_max_us": late_us(1.0),
        "cpu_us_per_packet": tally.cpu_ns.map(|nanos| nanos as f64 / 1e3 / tally.packets.max(1) as f64),
    });
    pair.remove()?;
    println!("{line}");
    Ok(())
}
