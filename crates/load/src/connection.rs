//! One connection of the engine, kept small: a thread walks over ten thousand of them.

use crate::framing::Framing;
use crate::ports::PortLease;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestInFlight {
    pub(crate) intended_ns: u64,
    pub(crate) since_ns: u64,
    pub(crate) first_byte_ns: u64,
    pub(crate) part_ns: u64,
    pub(crate) target: u32,
    pub(crate) received_bytes: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// No socket. May be opened when needed.
    #[default]
    Closed,
    /// No socket; the last attempt failed, and the next is not made before `since_ns`.
    BackOff,
    /// Connecting since `since_ns`.
    Connecting,
    /// TCP is established, the TLS handshake is in progress; connecting since `since_ns`.
    Handshaking,
    /// The protocol's own opening, e.g. a password, is in progress; connecting since `since_ns`.
    Opening,
    Idle,
    /// A request is being sent or its response awaited; sent at `since_ns`. Later requests may be in flight, too.
    Busy,
    /// The last response is complete; waits since `since_ns` for the server to close first.
    Lingering,
}

impl ConnectionState {
    /// Whether a connection attempt is in progress.
    pub(crate) fn is_opening(self) -> bool {
        matches!(self, ConnectionState::Connecting | ConnectionState::Handshaking | ConnectionState::Opening)
    }
}

pub(crate) const CARRIES_REQUEST: u16 = 1;
pub(crate) const QUEUED: u16 = 2;
pub(crate) const WATCHES_WRITABLE: u16 = 4;
pub(crate) const LAST_REQUEST: u16 = 8;
pub(crate) const PEER_CLOSED: u16 = 16;
pub(crate) const KNOWN_SLOW: u16 = 32;

/// A request of the window on this slot has no response yet.
pub(crate) const ASKED: u16 = 64;
/// A byte of a response came since the window began.
pub(crate) const ANSWERED: u16 = 128;
/// The socket reports the kernel's time stamps.
pub(crate) const STAMPED: u16 = 256;
/// Requests that are put now are sent together later.
pub(crate) const CORKED: u16 = 512;

/// The server announced a close but left it to the client: do not wait for it again.
pub(crate) const LINGERED: u16 = 1024;

/// A slot, which outlives its sockets.
#[derive(Debug, Default)]
pub(crate) struct Connection<F> {
    pub(crate) stream: F,
    pub(crate) since_ns: u64,
    /// Intended send of the described request. This and the next fields describe one of the requests in flight.
    pub(crate) intended_ns: u64,
    /// First byte of the response; 0 = none yet.
    pub(crate) first_byte_ns: u64,
    /// Last part of the response; 0 = none yet, or parts are not timed.
    pub(crate) part_ns: u64,
    pub(crate) fd: i32,
    /// Request bytes sent so far after a short send. Requests are shorter than `u32::MAX`.
    pub(crate) written: u32,
    pub(crate) requests: u32,
    pub(crate) target: u32,
    /// Bytes of the response so far; `u32::MAX` means that or more.
    pub(crate) received_bytes: u32,
    pub(crate) lease: PortLease,
    /// Distinguishes events of this socket from those of an earlier one in the slot.
    pub(crate) generation: u16,
    pub(crate) state: ConnectionState,
    pub(crate) flags: u16,
    pub(crate) failures: u8,
}

impl<F: Default> Connection<F> {
    pub(crate) fn new() -> Self {
        Connection { fd: -1, ..Connection::default() }
    }
}

impl<F> Connection<F> {
    #[inline]
    pub(crate) fn under_way(&self) -> RequestInFlight {
        let Connection { intended_ns, since_ns, first_byte_ns, part_ns, target, received_bytes, .. } = *self;
        RequestInFlight { intended_ns, since_ns, first_byte_ns, part_ns, target, received_bytes }
    }

    #[inline]
    pub(crate) fn describe(&mut self, request: RequestInFlight) {
        RequestInFlight {
            intended_ns: self.intended_ns,
            since_ns: self.since_ns,
            first_byte_ns: self.first_byte_ns,
            part_ns: self.part_ns,
            target: self.target,
            received_bytes: self.received_bytes,
        } = request;
    }

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u16, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    pub(crate) fn carry_request(&mut self, intended_ns: u64, waits_since_ns: u64) {
        self.intended_ns = intended_ns;
        // This field is unused until the request is sent, so it can hold the start of the wait.
        self.first_byte_ns = waits_since_ns;
        self.set(CARRIES_REQUEST, true);
    }

    pub(crate) fn carried_request(&self) -> Option<u64> {
        self.has(CARRIES_REQUEST).then_some(self.intended_ns)
    }

    pub(crate) fn take_carried_request(&mut self) -> Option<u64> {
        let intended_ns = self.carried_request();
        self.set(CARRIES_REQUEST, false);
        intended_ns
    }

    #[inline]
    pub(crate) fn token(&self, slot: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(slot)
    }
}

const _: () = assert!(size_of::<Framing>() <= 32 && size_of::<Connection<Framing>>() <= 96);
