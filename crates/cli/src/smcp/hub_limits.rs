//! The limits of a hub as options of `budao smcp server`.

use std::time::Duration;

use budao_smcp::server::Limits;
use clap::value_parser;

/// The limits that an operator changes; the others follow from them.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Connections at once
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Calls of one agent at once
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = value_parser!(u32).range(1..))]
    max_calls: u32,
    /// Size of a request
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = value_parser!(u32).range(1..=65_536))]
    max_request_kib: u32,
    /// Size of a computer's answer
    #[arg(long, value_name = "KIB", default_value_t = 3072, value_parser = value_parser!(u32).range(1..=65_536))]
    max_answer_kib: u32,
    /// What may wait for one slow connection
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = value_parser!(u32).range(1..=65_536))]
    max_queue_mib: u32,
    /// What may wait for all slow connections together
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = value_parser!(u32).range(1..=1_048_576))]
    max_queues_mib: u32,
    /// How long the hub waits beyond a call's own timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = value_parser!(u32).range(1..=3600))]
    call_grace: u32,
}

impl LimitArgs {
    pub(super) fn to_limits(self) -> Limits {
        let bytes = |count: u32, unit: usize| count as usize * unit;
        let usual = Limits::default();
        let (request, answer) =
            (bytes(self.max_request_kib, 1 << 10), bytes(self.max_answer_kib, 1 << 10));
        Limits {
            connections_max: self.max_connections as usize,
            calls_max: self.max_calls as usize,
            request_bytes_max: request,
            answer_bytes_max: answer,
            // A frame must hold the largest request and the largest answer.
            frame_bytes_max: usual.frame_bytes_max.max(request * 2).max(answer * 2),
            queue_bytes_max: bytes(self.max_queue_mib, 1 << 20),
            queue_bytes_total_max: bytes(self.max_queues_mib, 1 << 20),
            grace: Duration::from_secs(self.call_grace.into()),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn without_options_the_limits_are_the_usual_ones() {
        let command = Command::parse_from(["hub"]);
        assert_eq!(command.limits.to_limits(), Limits::default());
    }

    #[test]
    fn a_frame_holds_the_largest_request_and_answer() {
        let args = ["hub", "--max-answer-kib", "20480", "--max-calls", "7", "--call-grace", "9"];
        let limits = Command::parse_from(args).limits.to_limits();
        assert_eq!((limits.answer_bytes_max, limits.frame_bytes_max), (20 << 20, 40 << 20));
        assert_eq!((limits.calls_max, limits.grace.as_secs()), (7, 9));
        assert!(Command::try_parse_from(["hub", "--max-calls", "0"]).is_err());
    }
}
