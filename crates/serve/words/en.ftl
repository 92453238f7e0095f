# What people are shown. The words for what went wrong are the catalog's.

connected = Connected.
heartbeat = The connection is alive.
accepted = Accepted: { $action }.
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
taken-over = Another connection controls this session now.
try = { " " }(try { $attempt } of { $max })
try-and-wait = { " " }(try { $attempt } of { $max }, next in { $wait } s)
