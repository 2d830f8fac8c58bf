//! Trace ids: a fresh random one for each request, in the header field `traceparent` (W3C, Trace Context).

use crate::socket::{Errno, errno};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::{LoadPlan, TraceId};
use std::io::Read;

/// Text before the value in a prebuilt request. No other field has this name.
const BEFORE: &[u8] = b"\r\ntraceparent: ";

/// The trace ids of the requests in flight.
pub struct Traces {
    rng: ChaCha8Rng,
    ids: Box<[TraceId]>,
    out: Vec<u8>,
}

impl Traces {
    /// `None` for a plan without trace ids. They do not depend on the plan's seed: two runs never have the same.
    pub fn new(plan: &LoadPlan, places: usize) -> Result<Option<Self>, Errno> {
        if !plan.traceparent {
            return Ok(None);
        }
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).map_err(errno)?;
        let ids = vec![TraceId::from_bits(0); places].into();
        Ok(Some(Traces { rng: ChaCha8Rng::from_seed(seed), ids, out: Vec::new() }))
    }

    /// A new id.
    #[inline]
    pub fn draw(&mut self) -> TraceId {
        TraceId::from_bits(self.rng.random())
    }

    /// Keeps the id of the request at `place`.
    #[inline]
    pub fn keep(&mut self, place: usize, id: TraceId) {
        self.ids[place] = id;
    }

    /// The id of the request at `place`.
    pub fn id(&self, place: usize) -> TraceId {
        self.ids[place]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ids)
    }

    /// `sent` bytes of the request were sent before.
    pub fn patched<'b>(&'b mut self, bytes: &'b [u8], place: usize, sent: usize) -> &'b [u8] {
        let Some(before) = memchr::memmem::find(bytes, BEFORE) else { return bytes };
        let from = before + BEFORE.len();
        let to = from + TraceId::PARENT_BYTES;
        if sent >= to {
            return bytes;
        }
        self.out.clear();
        self.out.extend_from_slice(bytes);
        if let Ok(value) = (&mut self.out[from..to]).try_into() {
            self.ids[place].write_parent(value);
        }
        &self.out
    }
}
