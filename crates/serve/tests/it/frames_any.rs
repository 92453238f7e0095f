//! Whatever the records say, projecting them never fails.

use budao_core::{
    Event, Lang, Record, Timestamp,
    event::{CallStart, Seq, TaskId},
    session::Session,
};
use budao_serve::{frame::Frame, project::Projector};
use proptest::prelude::*;

use crate::{
    frames::read,
    frames_history::{EPOCH, SESSION, call, history},
};

/// Records of the history in any order, any number of times, with any step, text, turn and time.
fn any_records() -> impl Strategy<Value = Vec<Record>> {
    let known = history(Lang::En);
    let one = (0..known.len(), any::<u32>(), ".{0,40}", 0_u64..20, any::<i64>());
    let record = one.prop_map(move |(index, step, text, turn, micros)| {
        let mut record = known[index].clone();
        (record.turn, record.at) = (turn, Timestamp::from_micros(micros));
        match &mut record.event {
            Event::TextDelta { step: at, text: words }
            | Event::ThinkingDelta { step: at, text: words } => {
                (*at, *words) = (step, text);
            }
            Event::ToolCallEnded { call: id, tool, .. }
            | Event::ToolCallStarted(CallStart { call: id, tool, .. }) => {
                (*id, *tool) = (call(&text), text);
            }
            Event::TaskEnded { task, .. } | Event::TaskRestarted { task, .. } => {
                *task = TaskId(text.as_str().into());
            }
            _ => {}
        }
        record
    });
    prop::collection::vec(record, 0..60).prop_map(|mut records| {
        for (index, record) in records.iter_mut().enumerate() {
            (record.session, record.epoch) = (SESSION, EPOCH);
            record.seq = index as Seq + 1;
        }
        records
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_records_become_frames_in_an_unbroken_chain(records in any_records()) {
        let mut projector = Projector::new(&Session::default(), 0);
        let mut last = 0;
        for record in &records {
            let Some(frame) = projector.project(record) else { continue };
            let position = frame.position().unwrap();
            prop_assert_eq!((position.seq, position.prev), (record.seq, last));
            prop_assert!(read(&frame)["metadata"].is_object());
            last = position.seq;
        }
        prop_assert_eq!(projector.last(), last);
    }

    #[test]
    fn any_cursor_gives_the_same_frames(records in any_records(), cut in 0_usize..60) {
        // A summary may stand for the very answer a turn ends with only where no engine would write it.
        let records: Vec<Record> = records
            .into_iter()
            .filter(|record| !matches!(record.event, Event::HistoryCompacted(_)))
            .enumerate()
            .map(|(index, record)| Record { seq: index as Seq + 1, ..record })
            .collect();
        let cut = cut.min(records.len());
        let frames = |state: &Session, cursor: usize| -> Vec<Frame> {
            let mut projector = Projector::new(state, cursor as Seq);
            records[cursor..].iter().filter_map(|record| projector.project(record)).collect()
        };
        let mut state = Session::default();
        state.apply_all(&records[..cut]);
        let (whole, rest) = (frames(&Session::default(), 0), frames(&state, cut));
        let tail = &whole[whole.len() - rest.len()..];
        for (index, (one, other)) in rest.iter().zip(tail).enumerate() {
            if index > 0 {
                prop_assert_eq!(one, other);
            } else {
                prop_assert_eq!(one.name(), other.name());
                prop_assert_eq!(one.position().unwrap().prev, cut as Seq);
            }
        }
    }
}
