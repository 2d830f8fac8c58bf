//! Measures the cost of an event on a connection of this process to itself.
//!
//! The programs watch a private port first, and a thread writes to itself over loopback and reads it back, with and
//! without the hook, in turns; then on another port, whose events the programs reject. In such a tight loop
//! all data is in the caches, so the cost for a server is about twice as high, by measurements with servers. The
//! result is multiplied by that and reported as an estimate; bench/observer-overhead checks it from outside.

use super::error::WatchError;
use super::programs::WatchPrograms;
use crate::cpu_clock;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Factor by which a tight loop underestimates costs.
pub const CACHE_FACTOR: f64 = 2.0;
/// Requests per piece. Pieces are short, so that other work disturbs few of them. A round's result is the lower
/// quintile of its pieces; the final one is the median of the rounds' differences.
const EXCHANGES: u32 = 10;
const PIECES: usize = 12;
const ROUNDS: u32 = 9;
/// Maximum multiple of the rounds if other work hides the cost and the difference would be 0.
const MORE_ROUNDS: u32 = 6;

/// Cost of an event, nanoseconds, including [`CACHE_FACTOR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventCosts {
    /// A read that counts.
    pub receive_ns: f64,
    /// A send in an open window.
    pub send_ns: f64,
    /// Additional cost of a read in an open window.
    pub window_receive_ns: f64,
    /// An event of another port or thread, which the program rejects.
    pub away_ns: f64,
}

/// Measures the costs. Takes about 100 ms, a few times that on a busy machine.
pub fn measure(programs: &mut WatchPrograms) -> Result<EventCosts, WatchError> {
    let io = |source| WatchError::System { doing: "calibrate the cost of an event on loopback", source };
    let (mut own, mut other) = (SocketPair::connect().map_err(io)?, SocketPair::connect().map_err(io)?);
    programs.watch(own.port, 0);
    let (mut counting, mut timing) = (Vec::new(), Vec::new());
    let (mut away, mut away_in_window) = (Vec::new(), Vec::new());
    own.exchanges().map_err(io)?;
    for round in 1..=ROUNDS * MORE_ROUNDS {
        let without = own.exchanges().map_err(io)?;
        programs.attach_receive()?;
        let with = own.exchanges().map_err(io)?;
        let with_other = other.exchanges().map_err(io)?;
        programs.open_window(round, false)?;
        timing.push(own.exchanges().map_err(io)? - with);
        away_in_window.push(other.exchanges().map_err(io)? - with_other);
        programs.close_window();
        programs.receive = None;
        counting.push(with - without);
        away.push(with_other - without);
        if round % ROUNDS == 0 && middle(counting.iter().copied()) > 0.0 {
            break;
        }
    }
    // On the other port, both reads of an exchange are rejected; on the watched port, only the client's.
    let median = |values: Vec<f64>| f64::max(middle(values), 0.0) * CACHE_FACTOR;
    let away_ns = median(away) / 2.0;
    let in_window = (median(timing) - median(away_in_window) / 2.0).max(0.0);
    Ok(EventCosts {
        receive_ns: (median(counting) - away_ns).max(0.0),
        send_ns: in_window / 2.0 / f64::from(programs.hooks.runs_per_send()),
        window_receive_ns: in_window / 2.0,
        away_ns,
    })
}

struct SocketPair {
    client: TcpStream,
    server: TcpStream,
    port: u16,
}

impl SocketPair {
    fn connect() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(SocketPair { client, server, port })
    }

    fn exchanges(&mut self) -> std::io::Result<f64> {
        let mut byte = [0];
        let mut took = Vec::with_capacity(PIECES);
        for _ in 0..PIECES {
            let before = cpu_clock::of_this_thread();
            for _ in 0..EXCHANGES {
                self.client.write_all(b"q")?;
                self.server.read_exact(&mut byte)?;
                self.server.write_all(b"a")?;
                self.client.read_exact(&mut byte)?;
            }
            took.push((cpu_clock::of_this_thread() - before) as f64 / f64::from(EXCHANGES));
        }
        Ok(rank(took, 5))
    }
}

/// The middle value; 0 of none.
pub fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    rank(values.into_iter().collect(), 2)
}

/// The value that exceeds `1 / part` of the others.
pub(super) fn rank(mut values: Vec<f64>, part: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / part).copied().unwrap_or(0.0)
}
