//! Packets in transit, oldest first, in one ring of bytes that grows as needed.

use std::collections::VecDeque;

const FIRST_BYTES: usize = 1 << 20;

/// A first-in first-out queue of packets with their due times.
///
/// Every packet is contiguous. While the queue is not empty, `write_at` never equals the front packet's place, so
/// "full" and "empty" cannot be confused.
#[derive(Debug)]
pub struct PacketQueue {
    bytes: Vec<u8>,
    packets: VecDeque<Packet>,
    write_at: usize,
    longest: usize,
    limit_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    due_ns: u64,
    at: usize,
    length: usize,
}

impl PacketQueue {
    /// `longest`: maximum packet size. `limit_bytes`: maximum memory.
    pub fn new(longest: usize, limit_bytes: usize) -> Self {
        let first = FIRST_BYTES.max(2 * longest).min(limit_bytes.max(2 * longest));
        PacketQueue {
            bytes: vec![0; first],
            packets: VecDeque::new(),
            write_at: 0,
            longest,
            limit_bytes: limit_bytes.max(first),
        }
    }

    pub fn room(&mut self) -> Option<&mut [u8]> {
        let at = match self.free_at() {
            Some(at) => at,
            None => {
                self.grow()?;
                self.free_at()?
            }
        };
        self.write_at = at;
        Some(&mut self.bytes[at..at + self.longest])
    }

    fn free_at(&self) -> Option<usize> {
        let Some(front) = self.packets.front() else { return Some(0) };
        if front.at > self.write_at {
            return (front.at - self.write_at > self.longest).then_some(self.write_at);
        }
        if self.bytes.len() - self.write_at >= self.longest {
            return Some(self.write_at);
        }
        (front.at > self.longest).then_some(0)
    }

    fn grow(&mut self) -> Option<()> {
        let larger = (2 * self.bytes.len()).min(self.limit_bytes);
        if larger == self.bytes.len() {
            return None;
        }
        let mut bytes = vec![0; larger];
        let mut at = 0;
        for packet in &mut self.packets {
            bytes[at..at + packet.length].copy_from_slice(&self.bytes[packet.at..packet.at + packet.length]);
            packet.at = at;
            at += packet.length;
        }
        self.bytes = bytes;
        self.write_at = at;
        Some(())
    }

    /// Adds the first `length` bytes of the last [`room`](Self::room) as a packet. Due times must not decrease.
    pub fn push(&mut self, length: usize, due_ns: u64) {
        debug_assert!(length <= self.longest && self.packets.back().is_none_or(|last| last.due_ns <= due_ns));
        self.packets.push_back(Packet { due_ns, at: self.write_at, length });
        self.write_at += length;
    }

    pub fn front(&self) -> Option<(u64, &[u8])> {
        let front = self.packets.front()?;
        Some((front.due_ns, &self.bytes[front.at..front.at + front.length]))
    }

    pub fn pop(&mut self) {
        self.packets.pop_front();
    }
}
