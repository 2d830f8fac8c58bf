use super::{IdleSlot, RETRY_NS, Replay};
use crate::replay::{FeedStep, Next};

pub(super) enum DueStep {
    Now(FeedStep),
    /// Nothing is due before this time; `u64::MAX`: an event must come first.
    At(u64),
}

impl Replay {
    pub(super) fn due(&mut self, now: u64, end_ns: u64) -> DueStep {
        if self.is_over {
            return DueStep::At(u64::MAX);
        }
        if !self.is_paced && now >= end_ns {
            // As in a closed loop, requests that are unsent when the window ends do not count.
            self.give_up();
            return DueStep::At(u64::MAX);
        }
        match self.feed.peek() {
            Next::Over => {
                self.is_over = true;
                self.comparison.is_whole = true;
                DueStep::At(u64::MAX)
            }
            Next::NotYet => DueStep::At(now + RETRY_NS),
            Next::Step(at_ns) if self.is_paced && self.start_ns.saturating_add(at_ns) >= end_ns => {
                self.is_over = true;
                DueStep::At(u64::MAX)
            }
            Next::Step(at_ns) if self.is_paced && self.start_ns + at_ns > now => DueStep::At(self.start_ns + at_ns),
            Next::Step(_) if self.waiting >= self.waiting_limit => {
                self.stalled_since_ns.get_or_insert(now);
                DueStep::At(u64::MAX)
            }
            Next::Step(_) => self.feed.take().map_or(DueStep::At(u64::MAX), |step| DueStep::Now(self.dated(step, now))),
        }
    }

    fn dated(&mut self, mut step: FeedStep, now: u64) -> FeedStep {
        if let FeedStep::Request(request) = &mut step {
            request.intended_ns = if self.is_paced { self.start_ns + request.intended_ns } else { now };
            // The server causes the delay of a full queue, not the generator.
            let stalled_since_ns = self.stalled_since_ns.unwrap_or(now).min(now);
            request.taken_ns = stalled_since_ns.max(request.intended_ns);
        }
        if self.waiting + 1 < self.waiting_limit {
            self.stalled_since_ns = None;
        }
        step
    }

    fn give_up(&mut self) {
        self.is_over = true;
        self.waiting = 0;
        self.clients.values_mut().for_each(|client| client.queue.clear());
        while let Some(client) = self.unplaced.pop_front() {
            self.clients.remove(&client);
        }
    }

    pub(super) fn place(&mut self, slot: u32, client: u64) {
        self.slots[slot as usize].client = Some(client);
        self.clients.entry(client).or_default().slot = Some(slot);
    }

    pub(super) fn release(&mut self, slot: u32) {
        if let Some(client) = self.slots[slot as usize].client.take() {
            self.clients.remove(&client);
        }
        match self.unplaced.pop_front() {
            Some(next) => {
                self.place(slot, next);
                self.freed.push(slot);
            }
            None => self.free.push(slot),
        }
    }

    pub(super) fn rests(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let visits = entry.visits;
        if entry.rested.replace(visits) == Some(visits) {
            return;
        }
        self.idle.push_back(IdleSlot { slot, visit: visits });
        if self.idle.len() > 2 * self.slots.len() + 64 {
            let slots = &self.slots;
            self.idle.retain(|idle| slots[idle.slot as usize].visits == idle.visit);
        }
    }

    /// The slot that has been idle the longest; counts it as evicted.
    pub(super) fn longest_idle(&mut self) -> Option<u32> {
        while let Some(IdleSlot { slot, visit }) = self.idle.pop_front() {
            let entry = &self.slots[slot as usize];
            let has_nothing =
                entry.client.and_then(|client| self.clients.get(&client)).is_some_and(|c| c.queue.is_empty());
            if entry.visits == visit && has_nothing {
                self.comparison.evicted += 1;
                return Some(slot);
            }
        }
        None
    }
}
