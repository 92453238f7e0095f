# Texts for users. The catalog has the texts of faults.

connected = Connected.
heartbeat = The connection is alive.
accepted = Accepted.
resume-complete = Reconnected. All missed events follow.
resume-gap = Reconnected. Part of the history is no longer available; the rest follows.
resume-expired = This session has expired. Please start a new one.
resume-epoch-mismatch = The history was replaced. It is sent again from the beginning.
replayed = { $count ->
    [0] Nothing was missed.
    [one] One missed event was sent again.
   *[other] { $count } missed events were sent again.
}
state-exported = The state of the session was exported.
shutting-down = The server is restarting. Please reconnect in a moment; nothing is lost.
try = { " " }(try { $attempt } of { $max })
try-and-wait = { " " }(try { $attempt } of { $max }, next in { $wait } s)

session-created = The session is ready.
session-closed = The session was closed.
session-failed = The session ended because of an error. Send a message to open it again.
session-resumed = The session was resumed after an interruption.
settings-changed = The settings were changed.
snapshot = The current state of the session; older events are omitted.
tasks-given = Tasks to solve ({ $count }): { $question }
cancelling = Stopping…
call-reconciling = { $tool } is asked what became of its interrupted call.
call-reconciled = { $tool } was asked what became of its interrupted call.
doubt-settled = The unknown outcome of { $tool } is settled.
timer-set = The timer { $timer } fires next at { $next }.
timer-cancelled = The timer { $timer } was cancelled.
message-withdrawn = The message was withdrawn; it will not be answered.
turn-retried = The failed run continues from where it stood.
interrupted = The run was stopped.
answer-ready = The answer is ready.

thinking = Thinking…
answer-abandoned = The unfinished answer was discarded; a new one follows.
calls-wanted = { $count ->
    [0] The model declined to answer.
    [one] Calling a tool.
   *[other] Calling { $count } tools.
}
history-compacted = The conversation was shortened so that it fits.

tool-call = Using the tool { $tool }…
tool-done = The tool { $tool } is done.
call-noted = New message from the tool { $tool }.
ask-address = { $server } asks you to open an address at { $host }: { $message }
ask-input = { $server } asks: { $message }
confirm-call = Please confirm: use the tool { $tool }.
confirm-raise-cap = The spending cap { $setting } is reached: { $spent } of { $cap } are spent. Allow { $more } more?
cap-raised = The spending cap { $setting } is raised by { $more }.
confirm-plan = { $named ->
    [0] Please confirm the plan ({ $count } tasks).
   *[other] Please confirm the plan ({ $count } tasks): { $summary }
}
question-confirmed = Confirmed.
question-declined = Declined.
question-expired = The question was not answered in time.
child-opened = A subagent started.
child-ended = A subagent finished.
todos-changed = The to-do list changed.

observer-lost = An observer lost its connection. The run continues.
request-held = { $reason ->
    [outage] { $wait ->
        [none] The service does not work at the moment.
        [0] The service does not work at the moment; next try now.
       *[other] The service does not work at the moment; next try in { $wait } s.
    }
   *[other] { $wait ->
        [none] The service is busy.
        [0] The service is busy; next try now.
       *[other] The service is busy; next try in { $wait } s.
    }
}{ $before ->
    [0] { "" }
    [one] { " " }{ $before } request is waiting before yours.
   *[other] { " " }{ $before } requests are waiting before yours.
}
retry = { $wait ->
    [0] Trying again now (try { $next } of { $max }).
   *[other] Trying again in { $wait } s (try { $next } of { $max }).
}
recovery-started = Recovering: the conversation is shortened so that it fits.
recovery-success = Recovered; the run continues.

plan-start = Planning: { $question }
plan-completed = { $named ->
    [0] The plan is ready ({ $count } tasks).
   *[other] The plan is ready ({ $count } tasks): { $summary }
}
plan-cancelled = The plan was cancelled.
replanning = A new plan was requested.
solver-start = Working on: { $title }
solver-completed = Done: { $title }
solver-cancelled = Stopped: { $title }
solver-restarted = Restarting: { $title }
task-stopping = Stopping a task…
task-restarting = Stopping a task to restart it…
aggregate-start = Combining the results…
aggregate-completed = The results are combined.
aggregate-cancelled = Combining the results was stopped.
pipeline-completed = { $status ->
    [success] Everything is done.
    [partial_success] Done, but some tasks failed.
    [cancelled] The run was stopped.
   *[other] The run failed.
}

front-end-went-on = The user went on without a result of this call.
front-end-question-open = An earlier question waits for an answer. Please answer it first.
