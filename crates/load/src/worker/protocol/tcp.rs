use super::in_order::{Reply, Talk};
use crate::framing::{Fed, Malformed};
use crate::replies::delimited::Delimited;
use record::protocol::{ANSWER, Expect, TcpPlan};

pub(crate) struct Tcp {
    send: Box<[u8]>,
    expect: Expect,
}

impl Tcp {
    pub(crate) fn new(plan: &TcpPlan) -> Self {
        Tcp { send: plan.send.clone().into(), expect: plan.expect }
    }
}

impl Talk for Tcp {
    type Reply = Delimited;

    #[inline]
    fn put(&mut self, out: &mut Vec<u8>) -> u32 {
        out.extend_from_slice(&self.send);
        0
    }

    #[inline]
    fn feed(&mut self, reply: &mut Delimited, _target: u32, bytes: &[u8]) -> Result<Fed, Malformed> {
        reply.feed(self.expect, bytes)
    }
}

impl Reply for Delimited {
    fn reset(&mut self) {
        Delimited::reset(self);
    }

    fn has_started(&self) -> bool {
        Delimited::has_started(self)
    }

    fn status(&self) -> u16 {
        ANSWER
    }

    fn error(&self) -> &[u8] {
        &[]
    }
}
