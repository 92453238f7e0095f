# What people are shown. The words for what went wrong are the catalog's.

connected = Connected.
heartbeat = The connection is alive.
accepted = Accepted.
resume-complete = Welcome back. Nothing was missed for good; it follows now.
resume-gap = Welcome back. Part of the history is no longer kept; the rest follows now.
resume-expired = This session is past its time. Please start a new one.
resume-epoch-mismatch = The history was replaced since. It is sent from the beginning.
replayed = { $count ->
    [0] Nothing was missed.
    [one] One missed event was sent again.
   *[other] { $count } missed events were sent again.
}
state-exported = The state of the session was exported.
shutting-down = The server restarts. Please come back in a moment; nothing is lost.
try = { " " }(try { $attempt } of { $max })
try-and-wait = { " " }(try { $attempt } of { $max }, next in { $wait } s)

session-created = The session is ready.
session-closed = The session was closed.
session-failed = The session ended because of an error. Send a message to open it again.
session-resumed = The session was taken up again after an interruption.
settings-changed = The settings were changed.
snapshot = The session as it stands; older events are left out.
tasks-given = Tasks to solve ({ $count }): { $question }
cancelling = Stopping…
message-withdrawn = The message was taken back; it will not be answered.
turn-retried = The failed run goes on from where it stood.
interrupted = The run was stopped.
answer-ready = The answer is ready.

thinking = Thinking…
answer-abandoned = The answer so far is taken back; it is written anew.
calls-wanted = { $count ->
    [0] The model declined to answer.
    [one] Calling a tool.
   *[other] Calling { $count } tools.
}
history-compacted = The conversation was shortened so that it fits.

tool-call = Using the tool { $tool }…
tool-done = The tool { $tool } is done.
call-noted = The tool { $tool } has something to say.
confirm-call = Please confirm: use the tool { $tool }.
confirm-plan = { $named ->
    [0] Please confirm the plan ({ $count } tasks).
   *[other] Please confirm the plan ({ $count } tasks): { $summary }
}
question-confirmed = Confirmed.
question-declined = Declined.
question-expired = Nobody answered the question in time.
child-opened = A helper began its work.
child-ended = A helper is through.
todos-changed = The to-do list changed.

observer-lost = Somebody who was watching lost the connection. The run goes on.
request-held = { $wait ->
    [none] The service is busy.
   *[other] The service is busy; next try in { $wait } s.
}{ $before ->
    [0] { "" }
    [one] { " " }{ $before } request is waiting before yours.
   *[other] { " " }{ $before } requests are waiting before yours.
}
retry = Trying again in { $wait } s (try { $next } of { $max }).
recovery-started = Recovering: the conversation is shortened so that it fits.
recovery-success = Recovered; the run goes on.

plan-start = Planning: { $question }
plan-completed = { $named ->
    [0] The plan is made ({ $count } tasks).
   *[other] The plan is made ({ $count } tasks): { $summary }
}
plan-cancelled = The plan was given up.
replanning = Another plan was asked for.
solver-start = Working on: { $title }
solver-completed = Done: { $title }
solver-cancelled = Stopped: { $title }
solver-restarted = Starting over: { $title }
task-stopping = Stopping a task…
task-restarting = Stopping a task, to start it over…
aggregate-start = Putting the results together…
aggregate-completed = The results are put together.
aggregate-cancelled = Putting the results together was stopped.
pipeline-completed = { $status ->
    [success] Everything is done.
    [partial_success] Done, though not every task worked.
    [cancelled] The run was stopped.
   *[other] The run failed.
}
