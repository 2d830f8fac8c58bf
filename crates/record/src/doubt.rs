//! A doubt: a stated reason not to trust a number, with its size and its remedy. Doubts are data: stored, printed,
//! and drawn.

use serde::{Deserialize, Serialize};

/// Declares the kinds with their meanings, so that reference pages use the words of the code.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident,)+) => {
        /// The kinds of doubt. The name is the stable key in JSON.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum DoubtKind {
            $($(#[doc = $doc])+ $kind,)+
            /// A reason that this version does not know (written by a later one).
            #[serde(other)]
            Other,
        }

        impl DoubtKind {
            /// The kinds that this version knows, with their meanings.
            pub const KNOWN: [(DoubtKind, &str); [$(stringify!($kind)),+].len()] =
                [$((DoubtKind::$kind, concat!($($doc),+))),+];
        }
    };
}

kinds! {
    /// The load generator ran out of CPU: the figures show the client's limit, not the server's.
    ClientSaturated,
    /// Requests left later than scheduled by more than the limit.
    ScheduleLag,
    /// Responses waited in the client's kernel for much of the response time before the client read them.
    ReapDelay,
    /// Requests waited for a free connection before they could leave.
    ConnectionWait,
    /// The machine's speed changed between repeats, as the yardstick shows.
    Drift,
    /// A hypervisor took CPU time, or the client was stopped.
    Steal,
    /// Other work used the CPUs under test.
    NoisyNeighbour,
    /// A percentile or an interval is based on too few samples.
    TooFewSamples,
    /// Requests had no response when they timed out or the run ended. Their response times are longer than measured, by
    /// an unknown amount.
    Censored,
    /// Events or samples were lost because a buffer was full.
    LostEvents,
    /// Connections received no byte of a response in the whole window.
    SilentConnections,
    /// Connections, throughput and mean response time contradict each other (Little's law).
    LittlesLaw,
    /// A quantity could not be measured: privilege, kernel support or hardware is missing.
    NotWatched,
    /// Client and server share CPUs: each disturbs the other.
    SharedCpus,
    /// The search ended at a limit (time, connections, rate) before the point was bracketed.
    SearchEndedEarly,
    /// Two independent sources disagree by more than their tolerance.
    SourcesDisagree,
    /// The run was interrupted; the results until then are kept.
    Interrupted,
    /// The server answered with errors, so the figures describe its error path.
    ServerErrors,
    /// A client machine was lost while it sent load. Requests after its last message are not in the figures.
    WorkerLost,
    /// The clocks of client machines could not be compared well enough for a common start.
    ClockOffset,
    /// The client machines' shares of the load changed between points because one of them could not keep up.
    SharesMoved,
    /// Parts of a run directory could not be read and were left out.
    Unreadable,
    /// The emulated path delivered packets late, or differs from the requested one.
    PathInexact,
    /// The requests sent differ from the log, or from the requested load.
    ReplayInexact,
    /// Requests in the traffic cannot be distinguished from outside, so the counts are not numbers of requests.
    NotSplit,
}

crate::worded! {
    /// Severity of a doubt for the verdict.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// Worth knowing; the verdict is valid.
        Note = "note",
        /// The affected figures should not be quoted without it.
        Warning = "warning",
        /// The figures do not describe the requested load.
        Invalid = "invalid",
    }
}

/// A doubt: the observation with its size, and the remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Doubt {
    /// Kind of the doubt.
    pub kind: DoubtKind,
    /// Severity for the verdict.
    pub severity: Severity,
    /// The evidence in one sentence with its size: "the client used 97 % of its CPU".
    pub what: String,
    /// Change that removes the doubt, in one sentence.
    pub remedy: String,
}

impl Doubt {
    /// A doubt of the given kind.
    pub fn new(kind: DoubtKind, severity: Severity, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Doubt { kind, severity, what: what.into(), remedy: remedy.into() }
    }
}

impl DoubtKind {
    /// A doubt of this kind that readers should know about.
    pub fn note(self, what: impl Into<String>, remedy: impl Into<String>) -> Doubt {
        Doubt::new(self, Severity::Note, what, remedy)
    }

    /// A doubt of this kind that may make figures wrong.
    pub fn warning(self, what: impl Into<String>, remedy: impl Into<String>) -> Doubt {
        Doubt::new(self, Severity::Warning, what, remedy)
    }

    /// A doubt of this kind that makes the figures useless.
    pub fn invalid(self, what: impl Into<String>, remedy: impl Into<String>) -> Doubt {
        Doubt::new(self, Severity::Invalid, what, remedy)
    }
}
