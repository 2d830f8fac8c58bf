//! Messages between the two ends: one line of JSON each.

use serde::{Deserialize, Serialize};

/// A message to the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Accept this many connections and send.
    Open {
        /// Connections to wait for.
        connections: u64,
        /// Segments a second over all of them.
        rate_per_sec: f64,
        /// Send for at least this long before reporting ready.
        warmup_ns: u64,
        /// Poll the clock until a segment is due, instead of sleeping.
        polls: bool,
    },
    /// Count from now on.
    Begin,
    /// Report the counts, and close.
    End,
}

/// A message from the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Earlier connections are closed; connect now.
    Listening,
    /// Warmed up: counting may begin.
    Ready,
    /// The counts.
    Sent {
        /// Segments.
        segments: u64,
        /// The length of its window.
        window_ns: u64,
        /// Their lateness: HdrHistogram, V2 compressed, base64.
        lag: String,
    },
    /// It failed.
    Trouble(String),
}

macro_rules! lines {
    ($type:ident) => {
        impl $type {
            /// The message with its end of line.
            pub fn to_line(&self) -> String {
                format!("{}\n", serde_json::to_string(self).unwrap_or_default())
            }

            /// Reads a line; an error is a phrase.
            pub fn from_line(line: &str) -> Result<Self, String> {
                serde_json::from_str(line.trim()).map_err(|why| format!("sent an unreadable message: {why}"))
            }
        }
    };
}
lines!(Order);
lines!(Reply);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        for order in
            [Order::Open { connections: 4, rate_per_sec: 8333.5, warmup_ns: 7, polls: true }, Order::Begin, Order::End]
        {
            assert_eq!(Order::from_line(&order.to_line()), Ok(order));
        }
        let sent = Reply::Sent { segments: 9, window_ns: 8, lag: "x".into() };
        for reply in [Reply::Listening, Reply::Ready, sent, Reply::Trouble("no \"room\"\n".into())] {
            assert_eq!(Reply::from_line(&reply.to_line()), Ok(reply.clone()));
            assert_eq!(reply.to_line().lines().count(), 1);
        }
        assert!(Order::from_line("{\"open\":{}}").is_err());
    }
}
