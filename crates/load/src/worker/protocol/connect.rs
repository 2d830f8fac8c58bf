use super::{Stream, WireProtocol};
use crate::connection::Connection;
use crate::framing::{Consumed, Malformed};
use crate::request::Requests;
use crate::worker::Source;
use record::protocol::ANSWER;

pub(crate) struct Connect;

#[derive(Default)]
pub(crate) struct NoStream;

impl Stream for NoStream {
    fn reset(&mut self) {}

    fn status(&self) -> u16 {
        ANSWER
    }

    fn is_keep_alive(&self) -> bool {
        false
    }
}

impl WireProtocol for Connect {
    type Stream = NoStream;

    const IS_PIPELINED: bool = false;

    const CONNECTS_ONLY: bool = true;

    fn put<S: Source>(&mut self, _source: &mut S, _requests: &Requests, _slot: usize, _stream: &mut NoStream) -> u32 {
        0
    }

    fn bytes<'b, S: Source>(
        &'b mut self,
        _source: &'b S,
        _requests: &'b Requests,
        _slot: usize,
        _connection: &'b Connection<NoStream>,
    ) -> &'b [u8] {
        &[]
    }

    fn longest<S: Source>(&self, _requests: &Requests) -> usize {
        0
    }

    fn feed(&mut self, _stream: &mut NoStream, _target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        Ok(Consumed { used: bytes.len(), ..Consumed::default() })
    }
}
