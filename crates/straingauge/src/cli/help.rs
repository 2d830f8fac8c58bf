//! The help of each command: examples first, and the options that `-h` shows, the most used ones first.

use clap::Command;

pub struct Help {
    pub name: &'static str,
    /// The options that `-h` shows, in this order.
    pub short: &'static str,
    /// Commands to copy, one per line.
    pub examples: &'static str,
}

pub const HELP: [Help; 12] = [
    Help {
        name: "find",
        short: "url command budget max_connections repeats full fail_if out json axis compare_with cold delay \
                server_cpus",
        examples: "straingauge find http://127.0.0.1:8080/ -- ./server --port 8080
straingauge find http://127.0.0.1:8080/ --budget 2m --fail-if 'plan < 60k'
straingauge find http://127.0.0.1:8080/ --compare-with './new --port 8080' -- ./old --port 8080",
    },
    Help {
        name: "load",
        short: "url command connections rate duration threads method header body urls fail_if full out json cold delay",
        examples: "straingauge load http://127.0.0.1:8080/ --connections 64 --duration 30s
straingauge load http://127.0.0.1:8080/ --rate 20k --fail-if 'p99 > 50ms'
straingauge load http://127.0.0.1:8080/ --header 'Content-Type: text/plain' --body @order.txt",
    },
    Help {
        name: "watch",
        short: "port duration interval detail overhead pid cgroup pack metrics out json",
        examples: "straingauge watch :8080
straingauge watch :8080 --duration 5m --out runs/today
straingauge watch :8080 --metrics 127.0.0.1:9100",
    },
    Help {
        name: "profile",
        short: "port command duration accounting flame export against diff json axis axis_values",
        examples: "straingauge profile :8080 --duration 30s
straingauge profile :8080 --flame cpu.svg --export pprof=cpu.pb.gz
straingauge profile http://127.0.0.1:8080/ --axis connections -- ./server --port 8080",
    },
    Help {
        name: "predict",
        short: "runs rate connections cores round_trip cold cheaper scenario json",
        examples: "straingauge predict runs/today --rate 2x
straingauge predict runs/today --connections 1000 --cores 4",
    },
    Help {
        name: "compare",
        short: "a b threshold page markdown junit json",
        examples: "straingauge compare runs/before runs/after --threshold 10%
straingauge compare runs/before runs/after --page difference.html",
    },
    Help {
        name: "report",
        short: "run full page markdown export json",
        examples: "straingauge report runs/today --full
straingauge report runs/today --export pprof=cpu.pb.gz",
    },
    Help {
        name: "runs",
        short: "folder only since page json",
        examples: "straingauge runs
straingauge runs --only nginx --since 2026-11-01",
    },
    Help {
        name: "files",
        short: "into mix trace trace_format limit json quiet",
        examples: "straingauge files --mix webstone --into /srv/www
straingauge files --trace access.log --into /srv/www",
    },
    Help {
        name: "wan",
        short: "command server delay loss bandwidth quickack path_by seed json quiet",
        examples: "straingauge wan --delay 20ms --server './server --port 8080' -- curl http://198.18.0.1:8080/
straingauge wan --bandwidth 100Mbit --loss 0.1% -- sh",
    },
    Help {
        name: "doctor",
        short: "json leftovers clean runs",
        examples: "straingauge doctor
straingauge doctor --clean",
    },
    Help {
        name: "fleet",
        short: "address workers worker_cpus worker_label source_interface node_timeout",
        examples: "straingauge fleet --workers 3 find http://10.0.0.5:8080/ --allow-target 10.0.0.5",
    },
];

/// Shows the usage after the examples.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Puts the examples before the usage in `--help`; with `is_short`, hides the options that `-h` does not show.
pub fn with_help(cli: Command, is_short: bool) -> Command {
    HELP.iter().fold(cli, |cli, help| {
        if cli.find_subcommand(help.name).is_none() {
            return cli;
        }
        cli.mut_subcommand(help.name, |command| {
            let examples = format!("Examples:\n  {}", help.examples.replace('\n', "\n  "));
            let command = command.help_template(TEMPLATE).before_long_help(examples);
            // `fleet` has subcommands.
            let command = with_help(command, is_short);
            if is_short { shortened(command, help) } else { command }
        })
    })
}

fn shortened(command: Command, help: &Help) -> Command {
    let mut place = 0;
    command.mut_args(|argument| {
        place += 1;
        let order = help.short.split_whitespace().position(|id| argument.get_id() == id);
        let shown = argument.hide(order.is_none()).help_heading(None::<&str>).display_order(order.unwrap_or(place));
        let is_word = shown.get_action().takes_values();
        if is_word { shown.hide_possible_values(true) } else { shown }
    })
}
