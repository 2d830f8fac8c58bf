use super::in_order::OrderedProtocol;
use crate::framing::{Consumed, Malformed};
use crate::replies::delimited::Delimited;
use record::protocol::{Expect, TcpPlan};

pub(crate) struct Tcp {
    send: Box<[u8]>,
    expect: Expect,
}

impl Tcp {
    pub(crate) fn new(plan: &TcpPlan) -> Self {
        Tcp { send: plan.send.clone().into(), expect: plan.expect }
    }
}

impl OrderedProtocol for Tcp {
    type Reply = Delimited;

    #[inline]
    fn put(&mut self, out: &mut Vec<u8>) -> u32 {
        out.extend_from_slice(&self.send);
        0
    }

    #[inline]
    fn feed(&mut self, reply: &mut Delimited, _target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        reply.feed(self.expect, bytes)
    }
}
