use super::commands::{KeyDraws, Word, put_number};
use super::in_order::OrderedProtocol;
use crate::framing::{Consumed, Malformed};
use crate::replies::resp::Resp;
use record::LoadShare;
use record::protocol::RedisPlan;

/// Redis' commands.
pub struct Redis {
    draws: KeyDraws,
    commands: Vec<Vec<Word>>,
    /// `None` chooses by the share of reads.
    next: Option<usize>,
    opening: Vec<u8>,
    opening_replies: u32,
    word: Vec<u8>,
}

impl Redis {
    /// The commands of one thread's share.
    pub fn new(plan: &RedisPlan, seed: u64, share: LoadShare) -> Self {
        let parsed = |words: &[String]| words.iter().map(|word| Word::parse(word)).collect::<Vec<_>>();
        let usual = || {
            let words = |text: &str| text.split(' ').map(Word::parse).collect();
            vec![words("GET key:{key}"), words("SET key:{key} {value}")]
        };
        let is_usual = plan.commands.is_empty();
        let (opening, opening_replies) = opening(plan);
        Redis {
            draws: KeyDraws::new(&plan.keyspace, seed, share),
            commands: if is_usual { usual() } else { plan.commands.iter().map(|words| parsed(words)).collect() },
            next: (!is_usual).then(|| share.index as usize % plan.commands.len()),
            opening,
            opening_replies,
            word: Vec::new(),
        }
    }
}

pub(crate) fn opening(plan: &RedisPlan) -> (Vec<u8>, u32) {
    let mut commands: Vec<Vec<&[u8]>> = Vec::new();
    match (plan.user.as_bytes(), plan.password.as_bytes()) {
        (_, b"") => {}
        (b"", password) => commands.push(vec![b"AUTH", password]),
        (user, password) => commands.push(vec![b"AUTH", user, password]),
    }
    let database = plan.database.to_string();
    if plan.database > 0 {
        commands.push(vec![b"SELECT", database.as_bytes()]);
    }
    let mut out = Vec::new();
    for words in &commands {
        put_head(&mut out, b'*', words.len());
        for word in words {
            put_word(&mut out, word);
        }
    }
    (out, commands.len() as u32)
}

#[inline]
fn put_head(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    put_number(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn put_word(out: &mut Vec<u8>, word: &[u8]) {
    put_head(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

impl OrderedProtocol for Redis {
    type Reply = Resp;

    fn open(&mut self, out: &mut Vec<u8>) -> u32 {
        out.extend_from_slice(&self.opening);
        self.opening_replies
    }

    #[inline]
    fn put(&mut self, out: &mut Vec<u8>) -> u32 {
        let index = match &mut self.next {
            None => usize::from(!self.draws.is_read()),
            Some(next) => {
                let index = *next;
                *next = if index + 1 == self.commands.len() { 0 } else { index + 1 };
                index
            }
        };
        let words = &self.commands[index];
        put_head(out, b'*', words.len());
        for word in words {
            self.word.clear();
            word.put(&mut self.draws, &mut self.word);
            put_word(out, &self.word);
        }
        0
    }

    #[inline]
    fn feed(&mut self, reply: &mut Resp, _target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        reply.feed(bytes)
    }
}
