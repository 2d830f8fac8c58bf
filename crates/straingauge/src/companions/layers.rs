//! The layer breakdown of a sweep's points: one sampler stays attached, and opens its gate for each point's window.

#[cfg(not(feature = "bpf"))]
pub use absent::LayerSampler;
#[cfg(feature = "bpf")]
pub use sampled::LayerSampler;

#[cfg(feature = "bpf")]
mod sampled {
    use crate::companions::{Companion, Load};
    use crate::measured::Measured;
    use observe::profile::{Profile, ProfileOptions, Profiler};
    use record::{Doubt, DoubtKind, Sweep, names};

    /// A fifth of a profile's usual rate: a point of two seconds gives some 400 samples of a busy CPU, a load with its
    /// repeats a few thousand. An interrupt may cost 80 us in a virtual machine (bench/profiler-overhead), which at
    /// 1,000 a second would lower the throughput.
    const FREQUENCY_HZ: u32 = 199;

    /// An attached sampler, and its samples of the window that ended last.
    pub struct LayerSampler {
        profiler: Profiler,
        /// Whether points also report costs per packet.
        is_per_packet: bool,
        /// Whether the load in progress is sampled.
        is_on: bool,
        seen: Option<Result<Profile, String>>,
    }

    impl LayerSampler {
        /// Attaches to the server on `port`, in the network namespace of `netns_pid`.
        pub fn attach(port: u16, netns_pid: Option<u32>) -> Result<LayerSampler, String> {
            let mut options = ProfileOptions::new(port);
            options.frequency_hz = FREQUENCY_HZ;
            options.events.clear();
            LayerSampler::with(options, netns_pid, false)
        }

        /// The same for a profile: at its own frequency, with the hardware's events, also per packet.
        pub fn attach_for_packets(
            port: u16,
            netns_pid: Option<u32>,
            frequency_hz: u32,
        ) -> Result<LayerSampler, String> {
            let mut options = ProfileOptions::new(port);
            options.frequency_hz = frequency_hz;
            LayerSampler::with(options, netns_pid, true)
        }

        fn with(
            mut options: ProfileOptions,
            netns_pid: Option<u32>,
            is_per_packet: bool,
        ) -> Result<LayerSampler, String> {
            options.netns_pid = netns_pid;
            let profiler = Profiler::attach(options).map_err(|error| error.to_string())?;
            Ok(LayerSampler { profiler, is_per_packet, is_on: false, seen: None })
        }
    }

    impl Companion for LayerSampler {
        /// A yardstick measures the machine's speed, so nothing interrupts it.
        fn load_begins(&mut self, load: &Load<'_>) {
            self.is_on = load.sweep != Sweep::Yardstick;
        }

        fn window_begins(&mut self, _load: &Load<'_>) {
            if self.is_on {
                self.seen = self.profiler.begin().err().map(|error| Err(error.to_string()));
            }
        }

        fn window_ends(&mut self) {
            if self.is_on && self.seen.is_none() {
                self.seen = Some(self.profiler.end(None).map_err(|error| error.to_string()));
            }
        }

        fn note(&mut self, measured: &mut Measured) {
            let point = &mut measured.point;
            match self.seen.take() {
                Some(Ok(profile)) => {
                    // Counted over the window, as its CPU time is.
                    let requests = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(0);
                    point.figures.extend(profile.point_figures(requests));
                    point.functions = profile.point_functions(requests);
                    if self.is_per_packet {
                        point.figures.extend(profile.packet_figures());
                    }
                    measured.stacks = Some(profile.point_stacks());
                    let is_loss = |doubt: &Doubt| doubt.kind == DoubtKind::LostEvents;
                    point.doubts.extend(profile.doubts.into_iter().filter(is_loss));
                }
                Some(Err(why)) => {
                    point.figures.extend(Profile::no_figures(&why));
                    if self.is_per_packet {
                        point.figures.extend(Profile::no_packet_figures(&why));
                    }
                }
                None => {}
            }
        }

        fn load_failed(&mut self) {
            self.seen = None;
        }
    }
}

#[cfg(not(feature = "bpf"))]
mod absent {
    use crate::companions::Companion;
    use crate::measured::Measured;

    /// Never made: without BPF there is no sampler.
    pub enum LayerSampler {}

    impl LayerSampler {
        pub fn attach(_: u16, _: Option<u32>) -> Result<LayerSampler, String> {
            Err("this straingauge was built without its BPF programs".into())
        }

        pub fn attach_for_packets(port: u16, netns_pid: Option<u32>, _: u32) -> Result<LayerSampler, String> {
            LayerSampler::attach(port, netns_pid)
        }
    }

    impl Companion for LayerSampler {
        fn note(&mut self, _: &mut Measured) {
            match *self {}
        }
    }
}
