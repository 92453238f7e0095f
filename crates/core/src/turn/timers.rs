//! Rules for timers: the limits on new timers, and the effect of a firing.

use super::{Event, Fact, Fault, Kind, Operation, Stepper};
use crate::{
    event::{CommandId, NewTimer, Origin},
    fault::{Detail, FactValue, text},
    message::Block,
    session::Session,
    timer::{TIMER_ID_MAX, TIMER_MESSAGE_MAX, Timer, TimerId, TimerRequest},
    trace::Trace,
};

impl Stepper<'_> {
    /// Sets a timer, or replaces the one with the same id.
    pub(super) fn set_timer(
        &mut self,
        timer: TimerId,
        when: TimerRequest,
        message: String,
        by: String,
    ) -> Result<(), Fault> {
        let event =
            self.session.set_timer(timer, when, message, by, self.env.now, self.env.limits)?;
        self.emit(event);
        Ok(())
    }

    pub(super) fn cancel_timer(&mut self, timer: TimerId, by: String) -> Result<(), Fault> {
        let event = self.session.cancel_timer(timer, by)?;
        self.emit(event);
        Ok(())
    }

    /// Fires the timers whose time has come: each queues one message and moves to its next time in the same record.
    pub(super) fn fire_timers(&mut self) {
        let turn = self.session.turn.as_ref().map_or(0, |turn| turn.number);
        while let Some(event) = self.session.next_firing(self.env.now, self.env.limits) {
            self.record(turn, Trace::NONE, event);
        }
        self.start_next();
    }
}

/// The decisions about timers that all engines share. The caller records the events.
impl Session {
    /// The event that sets a timer.
    ///
    /// # Errors
    /// When the id, the message or the time is invalid, the session has too many timers, or it is the child of another.
    pub fn set_timer(
        &self,
        timer: TimerId,
        when: TimerRequest,
        message: String,
        by: String,
        now: crate::Timestamp,
        limits: &crate::limits::Limits,
    ) -> Result<Event, Fault> {
        let length = timer.0.len();
        if length == 0 || length > TIMER_ID_MAX || timer.0.chars().any(char::is_control) {
            let rule = format!("an id has 1 to {TIMER_ID_MAX} bytes and no control characters");
            return Err(violated("timer", rule, cut(&timer.0)));
        }
        if message.trim().is_empty() || message.len() > TIMER_MESSAGE_MAX {
            let rule = format!("a message is not empty and has at most {TIMER_MESSAGE_MAX} bytes");
            return Err(violated("message", rule, cut(&message)));
        }
        if let Some(Origin::Call { parent, .. } | Origin::Stage { parent, .. }) = &self.origin {
            let rule =
                format!("the child of another session has no timers; its parent is {parent}");
            return Err(violated("timer", rule, timer.to_string()));
        }
        let limit = limits.session_timers;
        if self.timers.get(&timer).is_none() && self.timers.len() >= limit {
            return Err(Fault::new(Kind::LimitReached, Operation::SetTimer)
                .with(Fact::Limit, limit)
                .with(Fact::Actual, self.timers.len())
                .with(Fact::LimitName, "session_timers"));
        }
        let (schedule, next) = when.resolve(now, limits)?;
        Ok(Event::TimerSet(NewTimer { timer, schedule, message, next, by }))
    }

    /// The event that cancels a timer.
    ///
    /// # Errors
    /// When no such timer is set.
    pub fn cancel_timer(&self, timer: TimerId, by: String) -> Result<Event, Fault> {
        match self.timers.get(&timer) {
            Some(_) => Ok(Event::TimerCancelled { timer, by }),
            None => Err(Fault::new(Kind::UnknownTimer, Operation::SetTimer)
                .with(Fact::Timer, cut(&timer.0))),
        }
    }

    /// The next firing that is due; none if no timer is. The caller records it before it asks again.
    #[must_use]
    pub fn next_firing(
        &self,
        now: crate::Timestamp,
        limits: &crate::limits::Limits,
    ) -> Option<Event> {
        let Timer { timer, schedule, message, next: due, .. } =
            self.timers.due(now).into_iter().next()?;
        // A clock that was set back does not bring a time again that has fired.
        let next = schedule.next_after(now.max(due), limits.timer_horizon);
        let missed = schedule.count_missed(due, now);
        let lang = self.settings.language;
        let facts = Detail::new()
            .with(Fact::Timer, timer.to_string())
            .with(Fact::DueAt, due.to_string())
            .with(Fact::Times, missed);
        let mut told = text::line("advice-timer-fired", &facts, lang);
        if missed > 0 {
            told.push(' ');
            told.push_str(&text::line("advice-timer-missed", &facts, lang));
        }
        let content = vec![Block::Text(format!("{told}\n\n{message}"))];
        // No sender can choose this id: gateways refuse the prefix.
        let command = CommandId(format!("own-timer-{}", self.head.saturating_add(1)).into());
        Some(Event::TimerFired { timer, command, content, due, missed, next })
    }
}

fn violated(field: &'static str, rule: String, value: String) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SetTimer)
        .with(Fact::Field, field)
        .with(Fact::Constraint, rule)
        .with(Fact::ProvidedValue, FactValue::Json(value.into()))
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}
