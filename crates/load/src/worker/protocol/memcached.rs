use super::commands::{KeyDraws, put_number};
use super::in_order::OrderedProtocol;
use crate::framing::{Consumed, Malformed};
use crate::replies::memcached as replies;
use record::LoadShare;
use record::protocol::MemcachedPlan;

/// memcached's commands.
pub struct Memcached {
    draws: KeyDraws,
    keys_per_get: u32,
    is_meta: bool,
}

impl Memcached {
    /// The commands of one thread's share.
    pub fn new(plan: &MemcachedPlan, seed: u64, share: LoadShare) -> Self {
        let draws = KeyDraws::new(&plan.keyspace, seed, share);
        Memcached { draws, keys_per_get: plan.keys_per_get.max(1), is_meta: plan.is_meta }
    }

    fn put_key(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" key:");
        put_number(out, self.draws.key());
    }
}

impl OrderedProtocol for Memcached {
    type Reply = replies::MemcachedReply;

    /// Appends a command. Returns the number of keys of a get, and 0 for a set. Meta commands are one for each key.
    #[inline]
    fn put(&mut self, out: &mut Vec<u8>) -> u32 {
        let mark = if self.is_meta { replies::META } else { 0 };
        let is_read = self.draws.is_read();
        if is_read && self.is_meta {
            for _ in 0..self.keys_per_get {
                out.extend_from_slice(b"mg");
                self.put_key(out);
                out.extend_from_slice(b" v\r\n");
            }
            return self.keys_per_get | mark;
        }
        if is_read {
            out.extend_from_slice(b"get");
            (0..self.keys_per_get).for_each(|_| self.put_key(out));
            out.extend_from_slice(b"\r\n");
            return self.keys_per_get;
        }
        out.extend_from_slice(if self.is_meta { b"ms" } else { b"set" });
        self.put_key(out);
        out.extend_from_slice(if self.is_meta { b" " } else { b" 0 0 " });
        put_number(out, self.draws.value.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.draws.value);
        out.extend_from_slice(b"\r\n");
        mark
    }

    #[inline]
    fn feed(&mut self, reply: &mut replies::MemcachedReply, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        reply.feed(target, bytes)
    }
}
