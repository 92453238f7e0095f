//! Ratios between our numbers and those of peers, of a floor or of another size, taken round by round within one run.
//!
//! Both sides of a ratio come from the same round, minutes apart at most, so that a slow hour of the machine cancels
//! out. The number is the median over the rounds; the spread is their full range.

use super::{BenchLine, Better, median};

/// Two benches whose ratio is reported.
struct Ratio {
    name: &'static str,
    /// Our bench, and below the peer's.
    ours: &'static str,
    theirs: &'static str,
    /// `Lower`: ours over theirs. `Higher`: theirs over ours, the factor by which we use less.
    better: Better,
    bar: Option<f64>,
    note: &'static str,
}

const RATIOS: &[Ratio] = &[
    Ratio {
        name: "turn/memory_vs_autoagents",
        ours: "turn/memory",
        theirs: "peer/autoagents/turn_memory",
        better: Better::Lower,
        bar: Some(1.2),
        note: "twenty turns, all of them kept; autoagents journals nothing",
    },
    Ratio {
        name: "turn/memory_vs_short",
        ours: "turn/memory",
        theirs: "peer/autoagents/turn_short",
        better: Better::Lower,
        bar: None,
        note: "the same, but autoagents remembers eight messages only",
    },
    Ratio {
        name: "turn/memory_128_vs_autoagents",
        ours: "turn/memory_128",
        theirs: "peer/autoagents/turn_at_once",
        better: Better::Lower,
        bar: Some(1.5),
        note: "128 conversations at once",
    },
    Ratio {
        name: "turn/memory_vs_openai",
        ours: "turn/memory",
        theirs: "peer/openai-agents/turn_memory",
        better: Better::Higher,
        bar: Some(40.0),
        note: "how many times less than openai-agents",
    },
    Ratio {
        name: "turn/memory_vs_rig",
        ours: "turn/memory",
        theirs: "peer/rig/turn_memory",
        better: Better::Lower,
        bar: Some(0.16),
        note: "the same; rig journals nothing and its caller owns the history",
    },
    Ratio {
        name: "turn/memory_vs_pydantic",
        ours: "turn/memory",
        theirs: "peer/pydantic-ai/turn_memory",
        better: Better::Higher,
        bar: Some(40.0),
        note: "how many times less than Pydantic AI",
    },
    Ratio {
        name: "turn/memory_vs_agno",
        ours: "turn/memory",
        theirs: "peer/agno/turn_memory",
        better: Better::Higher,
        bar: Some(40.0),
        note: "how many times less than agno with its database in memory",
    },
    Ratio {
        name: "turn/start_vs_rig",
        ours: "turn/start",
        theirs: "peer/rig/turn_start",
        better: Better::Lower,
        bar: Some(1.5),
        note: "from the start of a process to its first answer",
    },
    Ratio {
        name: "turn/start_vs_agno",
        ours: "turn/start",
        theirs: "peer/agno/turn_start",
        better: Better::Higher,
        bar: Some(100.0),
        note: "the same, how many times less than agno",
    },
    Ratio {
        name: "turn/start_vs_langgraph",
        ours: "turn/start",
        theirs: "peer/langgraph/turn_start",
        better: Better::Higher,
        bar: Some(100.0),
        note: "the same, how many times less than langgraph",
    },
    Ratio {
        name: "turn/start_vs_openai",
        ours: "turn/start",
        theirs: "peer/openai-agents/turn_start",
        better: Better::Higher,
        bar: Some(100.0),
        note: "the same, how many times less than openai-agents",
    },
    Ratio {
        name: "turn/start_vs_pydantic",
        ours: "turn/start",
        theirs: "peer/pydantic-ai/turn_start",
        better: Better::Higher,
        bar: Some(100.0),
        note: "the same, how many times less than pydantic-ai",
    },
    Ratio {
        name: "turn/session_vs_rig",
        ours: "turn/session",
        theirs: "peer/rig/turn_session",
        better: Better::Higher,
        bar: None,
        note: "a kept session of one turn: how many times less memory",
    },
    Ratio {
        name: "turn/session_vs_openai",
        ours: "turn/session",
        theirs: "peer/openai-agents/turn_session",
        better: Better::Higher,
        bar: Some(1.0),
        note: "the same, one agent for all sessions",
    },
    Ratio {
        name: "turn/durable_vs_langgraph",
        ours: "turn/durable_alone",
        theirs: "peer/langgraph/turn_durable",
        better: Better::Higher,
        bar: Some(20.0),
        note: "how many times less than LangGraph with its SQLite saver, syncs included",
    },
    Ratio {
        name: "turn/durable_128_vs_langgraph",
        ours: "turn/durable_128",
        theirs: "peer/langgraph/turn_at_once",
        better: Better::Higher,
        bar: Some(150.0),
        note: "the same, 128 conversations at once",
    },
    Ratio {
        name: "turn/durable_vs_openai",
        ours: "turn/durable_alone",
        theirs: "peer/openai-agents/turn_durable",
        better: Better::Higher,
        bar: None,
        note: "how many times less than openai-agents with its SQLite session",
    },
    Ratio {
        name: "serve/events_1_memory_vs_websockets",
        ours: "serve/events_1_memory",
        theirs: "peer/websockets/serve_events_1",
        better: Better::Higher,
        bar: Some(12.0),
        note: "how many times less than a server on Python websockets: an event, one connection",
    },
    Ratio {
        name: "serve/events_1_durable_vs_websockets",
        ours: "serve/events_1_durable",
        theirs: "peer/websockets/serve_events_1",
        better: Better::Higher,
        bar: Some(3.0),
        note: "the same, ours on disk",
    },
    Ratio {
        name: "serve/events_100_memory_vs_websockets",
        ours: "serve/events_100_memory",
        theirs: "peer/websockets/serve_events_100",
        better: Better::Higher,
        bar: Some(12.0),
        note: "how many times less than a server on Python websockets: an event, 100 connections",
    },
    Ratio {
        name: "serve/events_100_durable_vs_websockets",
        ours: "serve/events_100_durable",
        theirs: "peer/websockets/serve_events_100",
        better: Better::Higher,
        bar: Some(3.0),
        note: "the same, ours on disk",
    },
    Ratio {
        name: "serve/events_1_memory_vs_floor",
        ours: "serve/events_1_memory",
        theirs: "serve/events_1_floor",
        better: Better::Lower,
        bar: Some(4.0),
        note: "the server over its WebSocket library alone, one connection",
    },
    Ratio {
        name: "serve/events_100_memory_vs_floor",
        ours: "serve/events_100_memory",
        theirs: "serve/events_100_floor",
        better: Better::Lower,
        bar: Some(4.0),
        note: "the same, 100 connections",
    },
    Ratio {
        name: "serve/replay_memory_vs_websockets",
        ours: "serve/replay_memory",
        theirs: "peer/websockets/serve_replay",
        better: Better::Higher,
        bar: Some(10.0),
        note: "the same, an event of a replay of 10 000",
    },
    Ratio {
        name: "serve/replay_durable_vs_websockets",
        ours: "serve/replay_durable",
        theirs: "peer/websockets/serve_replay",
        better: Better::Higher,
        bar: None,
        note: "the same, ours from disk",
    },
    Ratio {
        name: "serve/ready_memory_vs_websockets",
        ours: "serve/ready_memory",
        theirs: "peer/websockets/serve_ready",
        better: Better::Higher,
        bar: Some(10.0),
        note: "the same, from connect to a session",
    },
    Ratio {
        name: "serve/ready_durable_vs_websockets",
        ours: "serve/ready_durable",
        theirs: "peer/websockets/serve_ready",
        better: Better::Higher,
        bar: None,
        note: "the same, ours on disk",
    },
    Ratio {
        name: "serve/fanout_vs_socketio",
        ours: "serve/fanout_durable",
        theirs: "peer/socketio-js/serve_fanout",
        better: Better::Higher,
        bar: Some(3.0),
        note: "how many times less than Socket.IO on Node: a delivery, ours on disk",
    },
    Ratio {
        name: "growth/turns",
        ours: "growth/turns_10000",
        theirs: "growth/turns_10",
        better: Better::Lower,
        bar: Some(1.25),
        note: "a turn of a session after 10 000 over one after 10",
    },
    Ratio {
        name: "growth/sessions",
        ours: "growth/sessions_100000",
        theirs: "growth/sessions_100",
        better: Better::Lower,
        bar: Some(1.25),
        note: "one session more in a file of 100 000 over one of 100",
    },
    Ratio {
        name: "growth/observers",
        ours: "growth/observers_10000",
        theirs: "growth/observers_1000",
        better: Better::Lower,
        bar: Some(1.25),
        note: "a delivery to 10 000 observers over one to 1 000",
    },
    Ratio {
        name: "growth/tools",
        ours: "growth/tools_5000",
        theirs: "growth/tools_10",
        better: Better::Lower,
        bar: Some(1.25),
        note: "a turn with 5 000 tools over one with 10",
    },
];

/// One line for every ratio with both sides measured. The n-th line of a bench is its n-th round.
pub(super) fn lines(heard: &[BenchLine]) -> Vec<BenchLine> {
    let rounds = |bench: &str| -> Vec<f64> {
        heard.iter().filter(|line| line.bench == bench).map(|line| line.value).collect()
    };
    RATIOS
        .iter()
        .filter_map(|ratio| {
            let pairs = rounds(ratio.ours).into_iter().zip(rounds(ratio.theirs));
            let times: Vec<f64> = pairs
                .map(|(ours, theirs)| match ratio.better {
                    Better::Lower => ours / theirs,
                    Better::Higher => theirs / ours,
                })
                .collect();
            (!times.is_empty()).then(|| BenchLine {
                bench: ratio.name.to_owned(),
                value: median(times.clone()),
                unit: "x".to_owned(),
                bar: ratio.bar,
                better: ratio.better,
                low: times.iter().copied().reduce(f64::min),
                high: times.iter().copied().reduce(f64::max),
                note: Some(ratio.note.to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bench: &str, value: f64) -> BenchLine {
        let text = format!(r#"{{"bench":"{bench}","value":{value},"unit":"µs CPU"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn rounds_are_compared_with_their_own_round() {
        let all = [
            heard("turn/memory", 10.0),
            heard("peer/openai-agents/turn_memory", 1000.0),
            heard("turn/memory", 40.0),
            heard("peer/openai-agents/turn_memory", 8000.0),
            heard("turn/memory", 20.0),
            heard("peer/openai-agents/turn_memory", 3000.0),
        ];
        let ratios = lines(&all);
        assert_eq!(ratios.len(), 1);
        assert_eq!(ratios[0].bench, "turn/memory_vs_openai");
        assert_eq!(
            (ratios[0].value, ratios[0].low, ratios[0].high),
            (150.0, Some(100.0), Some(200.0))
        );
    }

    #[test]
    fn a_ratio_without_its_other_side_is_no_number() {
        assert_eq!(lines(&[heard("turn/memory", 10.0)]), []);
    }
}
