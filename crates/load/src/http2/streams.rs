//! The place of a stream is the low bits of its number. Stream numbers may have gaps, so a number whose place is taken
//! is not used. So one step finds a stream, for any number of streams and any order of their ends.

use super::messages::Messages;
use crate::framing::PartCounter;

#[derive(Debug, Clone, Default)]
pub(super) struct Http2Stream<R> {
    pub(super) id: u32,
    pub(super) unsent: u32,
    /// Negative after the server shrank its window.
    pub(super) send_window: i64,
    pub(super) received: u32,
    pub(super) status: u16,
    pub(super) interim: u8,
    pub(super) grpc_status: Option<u16>,
    pub(super) is_head: bool,
    pub(super) body_left: Option<u64>,
    pub(super) parted: PartCounter,
    pub(super) messages: Messages,
    pub(super) request: R,
}

pub(crate) fn places(most: u32) -> usize {
    (most.max(1) as usize * 2).next_power_of_two()
}

const LAST_ID: u32 = (1 << 31) - (1 << 20);

#[derive(Debug)]
pub(super) struct Streams<R> {
    places: Vec<Http2Stream<R>>,
    open: u32,
    next_id: u32,
}

impl<R> Default for Streams<R> {
    fn default() -> Self {
        Streams { places: Vec::new(), open: 0, next_id: 1 }
    }
}

impl<R: Default + Clone> Streams<R> {
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Http2Stream<R>>()
    }

    pub(super) fn open(&self) -> u32 {
        self.open
    }

    pub(super) fn has_numbers(&self) -> bool {
        self.next_id < LAST_ID
    }

    pub(super) fn was_begun(&self, id: u32) -> bool {
        id & 1 == 1 && id < self.next_id
    }

    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.places.len() - 1)
    }

    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.place(id);
        (id != 0 && self.places[place].id == id).then_some(place)
    }

    #[inline]
    pub(super) fn at(&mut self, place: usize) -> &mut Http2Stream<R> {
        &mut self.places[place]
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> &Http2Stream<R> {
        &self.places[place]
    }

    pub(super) fn allot(&mut self, most: u32) {
        self.places = vec![Http2Stream::default(); places(most)];
    }

    /// The caller ensures that a place is free.
    #[inline]
    pub(super) fn begin(&mut self) -> usize {
        debug_assert!((self.open as usize) < self.places.len());
        let mut place = self.place(self.next_id);
        while self.places[place].id != 0 {
            self.next_id += 2;
            place = self.place(self.next_id);
        }
        self.places[place] = Http2Stream { id: self.next_id, ..Http2Stream::default() };
        self.next_id += 2;
        self.open += 1;
        place
    }

    #[inline]
    pub(super) fn end(&mut self, place: usize) {
        self.places[place].id = 0;
        self.open -= 1;
    }

    /// The place of an open stream for which `holds` is true, searched from a place on.
    pub(super) fn position(&self, from: usize, mut holds: impl FnMut(&Http2Stream<R>) -> bool) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        let (before, after) = self.places.split_at(from.min(self.places.len()));
        let found = |part: &[Http2Stream<R>], holds: &mut dyn FnMut(&Http2Stream<R>) -> bool| {
            part.iter().position(|stream| stream.id != 0 && holds(stream))
        };
        found(after, &mut holds).map(|at| at + before.len()).or_else(|| found(before, &mut holds))
    }

    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Http2Stream<R>)) {
        self.places.iter_mut().filter(|stream| stream.id != 0).for_each(&mut change);
    }
}
