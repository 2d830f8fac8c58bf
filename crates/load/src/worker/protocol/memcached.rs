use super::commands::{KeyDraws, put_number};
use super::in_order::OrderedProtocol;
use crate::framing::{Consumed, Malformed};
use crate::replies::memcached as replies;
use record::LoadShare;
use record::protocol::MemcachedPlan;

pub(crate) struct Memcached {
    draws: KeyDraws,
    keys_per_get: u32,
    is_meta: bool,
}

impl Memcached {
    pub(crate) fn new(plan: &MemcachedPlan, seed: u64, share: LoadShare) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn first(plan: &MemcachedPlan) -> (String, u32) {
        let mut out = Vec::new();
        let target = Memcached::new(plan, 1, LoadShare::one(0, 1)).put(&mut out);
        (String::from_utf8(out).unwrap(), target)
    }

    #[test]
    fn a_get_may_have_several_keys_and_a_set_has_its_length() {
        let mut plan = MemcachedPlan { keys_per_get: 2, ..MemcachedPlan::default() };
        (plan.keyspace.keys, plan.keyspace.value_bytes, plan.keyspace.read_ratio) = (1, 3, 1.0);
        assert_eq!(first(&plan), ("get key:0 key:0\r\n".into(), 2));
        plan.keyspace.read_ratio = 0.0;
        assert_eq!(first(&plan), ("set key:0 0 0 3\r\nxxx\r\n".into(), 0));
        plan.is_meta = true;
        assert_eq!(first(&plan), ("ms key:0 3\r\nxxx\r\n".into(), replies::META));
        plan.keyspace.read_ratio = 1.0;
        assert_eq!(first(&plan), ("mg key:0 v\r\nmg key:0 v\r\n".into(), 2 | replies::META));
    }
}
