//! The layer breakdown of a sweep's points: one sampler stays attached, and opens its gate for each point's window.

#[cfg(not(feature = "bpf"))]
pub use absent::LayerGauge;
#[cfg(feature = "bpf")]
pub use sampled::LayerGauge;

#[cfg(feature = "bpf")]
mod sampled {
    use observe::profile::{Profile, ProfileOptions, Profiler};
    use record::{Doubt, DoubtKind, Point, names};

    /// A fifth of a profile's usual rate: a point of two seconds gives some 400 samples of a busy CPU, a load with its
    /// repeats a few thousand. An interrupt may cost 80 us in a virtual machine (bench/profiler-overhead), which at 1,000 a
    /// second would show in the throughput.
    const FREQUENCY_HZ: u32 = 199;

    /// An attached sampler, and what it saw of the window that ended last.
    pub struct LayerGauge {
        profiler: Profiler,
        /// Points also say what a packet cost.
        is_per_packet: bool,
        seen: Option<Result<Profile, String>>,
    }

    impl LayerGauge {
        /// Attaches to the server on `port`, in the network namespace of `netns_pid`.
        pub fn attach(port: u16, netns_pid: Option<u32>) -> Result<LayerGauge, String> {
            let mut options = ProfileOptions::new(port);
            options.netns_pid = netns_pid;
            options.frequency_hz = FREQUENCY_HZ;
            options.events.clear();
            let profiler = Profiler::attach(options).map_err(|error| error.to_string())?;
            Ok(LayerGauge { profiler, is_per_packet: false, seen: None })
        }

        /// The same for a profile: at a frequency of its own, with the events of the hardware, also per packet.
        pub fn attach_for_packets(port: u16, netns_pid: Option<u32>, frequency_hz: u32) -> Result<LayerGauge, String> {
            let mut options = ProfileOptions::new(port);
            options.netns_pid = netns_pid;
            options.frequency_hz = frequency_hz;
            let profiler = Profiler::attach(options).map_err(|error| error.to_string())?;
            Ok(LayerGauge { profiler, is_per_packet: true, seen: None })
        }

        /// A window begins.
        pub fn begin(&mut self) {
            self.seen = self.profiler.begin().err().map(|error| Err(error.to_string()));
        }

        /// The window ends.
        pub fn end(&mut self) {
            if self.seen.is_none() {
                self.seen = Some(self.profiler.end(None).map_err(|error| error.to_string()));
            }
        }

        /// Puts what the window showed into its point.
        pub fn note(&mut self, point: &mut Point) {
            match self.seen.take() {
                Some(Ok(profile)) => {
                    // Those of the window, as its CPU time is.
                    let requests = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(0);
                    point.figures.extend(profile.point_figures(requests));
                    point.functions = profile.point_functions(requests);
                    if self.is_per_packet {
                        point.figures.extend(profile.packet_figures());
                    }
                    let is_loss = |doubt: &Doubt| doubt.kind == DoubtKind::LostEvents;
                    point.doubts.extend(profile.doubts.into_iter().filter(is_loss));
                }
                Some(Err(why)) => point.figures.extend(Profile::no_figures(&why)),
                None => {}
            }
        }
    }
}

#[cfg(not(feature = "bpf"))]
mod absent {
    use record::Point;

    /// Never made: without BPF there is no sampler.
    pub enum LayerGauge {}

    impl LayerGauge {
        pub fn attach(_: u16, _: Option<u32>) -> Result<LayerGauge, String> {
            Err("this straingauge was built without its BPF programs".into())
        }

        pub fn attach_for_packets(port: u16, netns_pid: Option<u32>, _: u32) -> Result<LayerGauge, String> {
            LayerGauge::attach(port, netns_pid)
        }

        pub fn begin(&mut self) {
            match *self {}
        }

        pub fn end(&mut self) {
            match *self {}
        }

        pub fn note(&mut self, _: &mut Point) {
            match *self {}
        }
    }
}
