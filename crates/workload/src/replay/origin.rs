use super::ReplayOptions;

/// The earliest time of the lines in the first sorting window.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplayOrigin {
    at_ns: Option<i64>,
    is_fixed: bool,
}

impl ReplayOrigin {
    pub(super) fn new(options: &ReplayOptions) -> Self {
        ReplayOrigin { at_ns: options.origin_ns, is_fixed: options.origin_ns.is_some() }
    }

    /// Takes the moved-up time of a line, so that a stray line of last year does not put a year before the first
    /// request.
    pub(super) fn observe(&mut self, time_ns: i64, line: u64, options: &ReplayOptions) {
        if self.is_fixed {
            return;
        }
        let origin = self.at_ns.map_or(time_ns, |origin| origin.min(time_ns));
        self.at_ns = Some(origin);
        // No earlier line can leave the window from here on. The same lines decide this for every share.
        let width_ns = i64::try_from(options.reorder_ns).unwrap_or(i64::MAX);
        self.is_fixed = time_ns >= origin.saturating_add(width_ns) || line >= options.held_limit as u64;
    }

    pub(super) fn at_ns(&self) -> Option<i64> {
        self.at_ns
    }
}
