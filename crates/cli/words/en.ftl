# Texts of the command line.

acp-accept-edits = Accept edits
acp-api-key-in-the-environment = API key in the environment
acp-calls-that-would-have-to-ask = Calls that would have to ask are denied
acp-configuration-valid = valid; { $count } MCP servers
acp-default = Default
acp-dont-ask = Don't ask
acp-edits-in-the-working-directories-run = Edits in the working directories run without asking; all other calls ask first
acp-failed = FAILED
acp-no-home-directory = no home directory
acp-no-home-directory-use-journal-url = no home directory; use --journal URL
acp-ok = ok
acp-run-claude-and-type-login = run `claude` and type `/login`
acp-run-claude-in-a-terminal-type = Run `claude` in a terminal, type `/login`, then try again.
acp-server-tools = { $server }: { $tools } tools
acp-set-anthropic-api-key-or-openai = Set the key of the model's service, for example ANTHROPIC_API_KEY or OPENAI_API_KEY, for this agent in the editor's settings, then start it again.
acp-sign-in-with-the-claude-cli = Sign in with the Claude CLI
acp-split-a-question-into-tasks-solve = Split a question into tasks, solve them, combine the results
acp-still-starting = still starting
acp-the-question = the question
acp-will-be-created = { $path } will be created

anomalies-no-anomalies-found = No anomalies found.

anomaly-ended_at_once = ended at once
anomaly-ended_without_text = ended without an answer
anomaly-message_right_after_end = message right after the end
anomaly-result_dropped = late result of another turn dropped
anomaly-silence = no records for a long time

chat-a-note-for-the-model = a note for the model
chat-ago-days = { $count } d
chat-ago-hours = { $count } h
chat-ago-minutes = { $count } min
chat-ago-seconds = { $count } s
chat-allow-call = allow call?
chat-choose-type-to-search-enter-resume = ↑/↓ choose · type to search · Enter resume · Esc quit
chat-earlier-messages = … earlier messages: `budao replay { $id }`
chat-enter-deny-with-this-note-esc = Enter deny with this note · Esc back
chat-enter-send-alt-enter-newline-ctrl = Enter send · Alt-Enter newline · Ctrl-T faults · PgUp/PgDn scroll · Ctrl-D quit
chat-esc-stop-ctrl-t-faults-pgup = Esc stop · Ctrl-T faults · PgUp/PgDn scroll · Ctrl-D quit
chat-in = in
chat-mcp-text-unusable = The server sent no text, or more than fits into a message.
chat-new = new
chat-next-try-in = next try in
chat-no = no
chat-no-answer-in-time = no answer in time
chat-no-matches = {"  "}no matches
chat-no-mcp-servers = No MCP servers are configured here.
chat-no-messages-yet-to-try-the = No messages yet. To try the demo model: read README.md and count its headings
chat-no-sessions-to-resume = No sessions to resume.
chat-not-recovered = not recovered
chat-nothing-none-of-its-calls-failed = nothing: none of its calls failed
chat-nothing-offered = No connected MCP server offers any.
chat-other-faults-scroll-esc-back = ←/→ other faults · ↑/↓ scroll · Esc back
chat-queued = queued
chat-ready = ready
chat-repaired = repaired:
chat-resume-which-session = Resume which session?
chat-scroll-ctrl-t-faults = ↑/↓ scroll · Ctrl-T faults
chat-step = step { $count }
chat-stopping = stopping …
chat-to-resume = To resume:
chat-to-the-model = to the model
chat-to-the-operator = to the operator
chat-to-the-user = to the user
chat-too-many-commands-at-once-try = Too many commands at once; try again.
chat-try = try
chat-try-2 = try
chat-type-a-message = type a message
chat-withdrawn = withdrawn
chat-y-answer-n-decline = [y] answer  [n] decline  [Esc] stop
chat-y-opened-n-decline = [y] I have opened it  [n] decline  [Esc] stop
chat-one-value-a-line = One value a line, as name: value. Enter sends, Alt-Enter breaks the line, Esc goes back
chat-unknown-mcp-server = There is no MCP server `{ $server }`.
chat-usage-prompt = Usage: /prompt SERVER NAME key=value …  (/prompts lists them)
chat-usage-resource = Usage: /resource SERVER URI message  (/resources lists them)
chat-y-yes-n-no-w-no = [y] yes  [n] no  [w] no, with a note  [Esc] stop
chat-yes = yes

config-created-with-every-key-and-its = Created with every key and its default.
config-is-valid = is valid
config-no-configuration-file-found-the-defaults = No configuration file found; the defaults apply.

count-already-existed = { $count } already existed
count-calls =
    { $count ->
        [one] { $count } call
       *[other] { $count } calls
    }
count-commands =
    { $count ->
        [one] { $count } command
       *[other] { $count } commands
    }
count-lines-below =
    { $count ->
        [one] { $count } line below
       *[other] { $count } lines below
    }
count-new-records =
    { $count ->
        [one] { $count } new record
       *[other] { $count } new records
    }
count-questions-wait-for-you =
    { $count ->
        [one] { $count } question waits for you
       *[other] { $count } questions wait for you
    }
count-records =
    { $count ->
        [one] { $count } record
       *[other] { $count } records
    }
count-sessions =
    { $count ->
        [one] { $count } session
       *[other] { $count } sessions
    }
count-sessions-copied =
    { $count ->
        [one] { $count } session copied
       *[other] { $count } sessions copied
    }
count-sessions-exported =
    { $count ->
        [one] { $count } session exported
       *[other] { $count } sessions exported
    }
count-sessions-imported =
    { $count ->
        [one] { $count } session imported
       *[other] { $count } sessions imported
    }
count-steps =
    { $count ->
        [one] { $count } step
       *[other] { $count } steps
    }
count-stored-outputs =
    { $count ->
        [one] { $count } stored output
       *[other] { $count } stored outputs
    }
count-tasks-planned =
    { $count ->
        [one] { $count } task planned
       *[other] { $count } tasks planned
    }
count-tokens =
    { $count ->
        [one] { $count } token
       *[other] { $count } tokens
    }

demo-acts-passed = acts passed
demo-are-you-there = are you there?
demo-claim-answer_is_whole = the answer is complete
demo-claim-corrected_itself = it then called the same tool correctly
demo-claim-killed_mid_turn = signal 9 ended the process in the middle of its turn
demo-claim-line_was_cut = the client noticed the lost connection
demo-claim-no_gaps = no session has a gap in its positions
demo-claim-nothing_missing = both clients received the same events
demo-claim-nothing_twice = each event arrived once, in order
demo-claim-recovered = the recovery was recorded
demo-claim-refused_twice = the model refused two requests
demo-claim-resumed = another process resumed the session
demo-claim-run_went_on_meanwhile = the run continued meanwhile
demo-claim-same_as_happened = the journal matches what the processes printed
demo-claim-told_of_the_mistake = the model received the error
demo-claim-tool_ran_once = the tool ran once: records and ledger agree
demo-claim-turn_ended = the turn ended normally
demo-claim-waited_as_long_as_asked = the retry waited as long as the service asked
demo-connection-cut-the-client-is-at = connection cut; the client is at
demo-connection-restored-the-run-is-at = connection restored; the run is at
demo-correct-after = See the line with ERR_VAL_002: the model received exactly this text. For details: `budao explain ERR_VAL_002`
demo-correct-before = The built-in demo model calls a tool with a wrong argument. It learns what is wrong only from the error message.
demo-correct-title = An agent corrects its own mistake
demo-count-to-12-slowly = count to 12 slowly
demo-cut-after = See the positions at the cut and after it: the client sent its last position, and the server sent the events after it.
demo-cut-before = A server runs an agent that counts, and a client follows it. The client's connection is cut and stays cut while the agent counts on. A second client stays connected for comparison.
demo-cut-title = A client loses its connection
demo-five-failures-and-the-recovery-from = Five failures and the recovery from each. Every command is a real process of this program; the output below is made from its records and checked. No network, no key.
demo-here-i-am-again = Here I am again.
demo-journal = Journal:
demo-kill-after = See the ledger's single line: the finished call did not run again. The unfinished answer was discarded and written again.
demo-kill-before = The agent appends a line to a ledger with a tool, then answers. In the middle of the answer its process gets SIGKILL. Another process resumes the session.
demo-kill-title = A process is killed, its turn continues
demo-line = line
demo-read-readme-md-and-count-its = read README.md and count its headings
demo-replay-after = See the records around the kill: two processes wrote one continuous history.
demo-replay-before = Every session of this demo is read back from the journal. The one whose process was killed is shown.
demo-replay-title = The records are replayed
demo-the-ledger-has-its-line-and = The ledger has its line, and whatever happens to me now, it is not written twice.
demo-the-records-stay-in-that-folder = The records stay in that folder until you delete it. To read them again:
demo-wait-after = See the two waits: the service asked for the first, the retry policy chose the second. Both are in the journal, so they survive a restart.
demo-wait-before = A scripted model answers 429 twice, the first time with a retry-after time. The retry loop is the one used for real models.
demo-wait-title = A model limits the request rate
demo-write-it-down = write it down

doctor-configuration = configuration
doctor-engine = engine
doctor-journal = journal
doctor-log_file = log file
doctor-login = login
doctor-models = models
doctor-permission = permission
doctor-tool_server = tool server

form-address = { $server } asks you to open an address at { $host }: { $message } ({ $url })
form-yes-words = y yes true
form-no-words = n no false
form-question = { $server } asks: { $message }
transcript-timer-set = timer set:
transcript-next-at = next at
transcript-timer-cancelled = timer cancelled:
timers-none = No timer is set.
timers-cancel-waits = The cancellation waits for a server. It takes effect before the timer can fire.
timers-cancelled = Cancelled. The timer does not fire any more.
doubts-none = No call is in doubt.
doubts-settle-waits = The settlement waits for a server with the engine of this session. It is recorded when one loads the session.
doubts-settled = Settled. The model reads it at its next step; nothing runs before.
doubts-settled-foreign = Settled. The agent reads it with the next message of the session; nothing runs before.

explain-also = { $others } other kinds have the number { $number } too: `budao explain --list { $number }`
explain-did-you-mean = Did you mean:
explain-kinds =
    { $count ->
        [0] No kinds match.
        [one] 1 kind. For details: `budao explain CODE`
       *[other] { $count } kinds. For details: `budao explain CODE`
    }
explain-meaning = { $value }: { $meaning }
explain-to-list-all-kinds = To list all kinds: `budao explain --list`
explain-unknown = Unknown code, number or name: `{ $what }`

journal-break-altered = a record between { $seq } and { $to } was altered
journal-break-anchor = the history up to record { $seq } differs from the earlier report
journal-break-appended = records { $seq } to { $to } do not continue the records before them: another program wrote them
journal-break-removed = records { $seq } to { $to } were removed
journal-break-reordered = records { $seq } to { $to } were moved to another position
journal-break-start = records { $seq } to { $to } do not continue the digest of the removed records before them
journal-break-truncated = the end is missing from record { $seq } on, at least to { $to }
journal-break-unproven = record { $seq } and later ones have no digest
journal-chain-broken = broken
journal-chain-rest-unproven = What follows a break is not proven.{"\u000A"}
journal-chain-whole = Every record is as it was written.{"\u000A"}
journal-checking = checking
journal-compacted = { $before } before, { $after } after
journal-copied-to = Copied to
journal-copying = copying
journal-damaged = damaged
journal-data-loss-found-earlier = Data loss found earlier:
journal-epochs-renewed = Every session gets a new epoch when it is next used.
journal-intact = Intact: { $sessions }, { $records }, { $commands }, { $blobs }.
journal-none = none
journal-sessions-have-another-history-in-the = sessions have another history in the target and were left as they are
journal-sessions-truncated-at-the-damage = sessions truncated at the damage
journal-readable = still readable
journal-the-journal-is-intact = The journal is intact.{"\u000A"}
journal-verified = Verified: { $sessions }, { $records }.

mcp-approved = Approved: { $tools }
mcp-disabled = off
mcp-enabled = on
mcp-logged-in = Logged in to { $server } at { $issuer }.
mcp-logged-out = Logged out of { $server }.
mcp-login-device = Open { $url } on any device and enter the code { $code }
mcp-login-expired = expired
mcp-login-issuer = authorization server
mcp-login-more-rights = more rights needed
mcp-login-none = not logged in
mcp-login-open =
    Open this address in a browser and log in:
    { $url }
    If the browser is on another machine, paste the address to which it returns, or the code.
mcp-login-page = You are logged in and can close this page.
mcp-login-renews = renews itself
mcp-login-scopes = rights
mcp-login-until = until
mcp-login-valid = logged in
mcp-no-remote = No server that takes a login is configured.
mcp-none = No MCP server is configured. Add one with --mcp, --mcp-config or [[mcp]] in the configuration file.
mcp-not-logged-in = There is no login to { $server }.
mcp-nothing-changed = No tool of the server has changed.
mcp-server = server
mcp-state = state
mcp-target = command or URL
mcp-tool-count = { $count ->
    [one] 1 tool
   *[other] { $count } tools
}
mcp-transport = transport
replay-agrees = { $sessions } agree, { $records }; { $taken } taken as recorded, { $skipped } of other engines skipped
replay-differs = differs at record { $seq }
replay-ends = (the history ends here)
replay-nothing = (no decision leads to it)
replay-recorded = recorded
replay-today = today

main-did-you-mean = Did you mean
main-mark = ?

man-see-budao-help = See `budao --help`.
man-unknown-command = Unknown command

nodes-address = address
nodes-alive = alive
nodes-clients = clients
nodes-count =
    { $count ->
        [one] {" "}· 1 node
       *[other] {" "}· { $count } nodes
    }
nodes-count-gone = {" "}· { $count } nodes, { $gone } gone
nodes-cpu = cpu
nodes-draining = draining
nodes-gone = gone
nodes-last-beat = last beat
nodes-none = No server uses this journal.
nodes-seconds-ago = { $count } s ago
nodes-sessions = sessions
nodes-state = state
nodes-version = version

run-cancelled = Cancelled.
run-no-turn-is-running = No turn is running.
run-nothing-to-resume = Nothing to resume.
run-session = session
run-the-last-turn-failed-continue-it = {" "}The last turn failed; continue it with: budao sessions retry
run-you = you

screen-this-needs-a-terminal-without-one = This needs a terminal. Without one, use

serve-listening-press-ctrl-c-to-stop = Listening. Press Ctrl-C to stop.
serve-resumed-sessions = Resumed sessions

sessions-answered = answered:
sessions-confirm-retry = Retry these turns ({ $count })? [y/N]{" "}
sessions-deleted = Deleted
sessions-faults = faults
sessions-left-out-because-they-cannot-be = Left out, because they cannot be retried (plans, children, other engines):
sessions-no-sessions-found = No sessions found.
sessions-nobodys-a-message-re-opens-the = nobody's; a message re-opens the session
sessions-none = none
sessions-nothing-was-retried-add-yes-to = Nothing was retried. Add `--yes` to retry these turns.
sessions-recovered = recovered
sessions-stopped-turns-under-way-go-on = Stopped. Turns under way go on with a server or with `budao resume ID`.
sessions-the-agents-a-turn-runs = the agent's: a turn runs
sessions-there-is-no-failed-turn-to = There is no failed turn to retry.
sessions-unknown-session = Unknown session
sessions-waits-for-a-decision = waits for a decision:
sessions-yours-a-call-waits-for-a = yours: a call waits for a decision; `budao resume` asks again
sessions-yours-no-process-runs-the-turn = yours: no process runs the turn; continue it with `budao resume`
sessions-yours-send-a-message = yours: send a message
sessions-yours-the-last-turn-failed-continue = yours: the last turn failed; continue it with `budao sessions retry`, or send a message

smcp-added = added
smcp-allow-call = allow call?
smcp-allowed = allowed:
smcp-connection-lost = connection lost
smcp-done = done
smcp-down = down
smcp-entered = entered
smcp-example = example:
smcp-its-servers = its servers
smcp-joined = joined
smcp-left = left
smcp-listening-on = listening on
smcp-missed-events = missed events:
smcp-missing-name-see-help = missing name; see `help`
smcp-no-computer-is-in-the-room = no computer is in the room
smcp-none = (none)
smcp-number = number:
smcp-present = present
smcp-ready = ready
smcp-rejoined = rejoined
smcp-retry-in = retry in
smcp-room = room
smcp-starting = starting
smcp-status-show-the-room-and-the =
    status               show the room and the state of each server
    tools                list the offered tools
    call TOOL [JSON]     call a tool without confirmation
    history              list the last calls, without secrets
    add JSON|FILE        add a server, or replace the one with the same id
    remove ID            stop a server and remove it
    start ID             start a server, or retry one that is down
    stop ID              stop a server
    join ROOM            move to another room
    leave                leave the room and stay connected
    quit                 stop the computer{"\u000A"}
smcp-still-starting = still starting:
smcp-stopped = stopped
smcp-tools = tools
smcp-tools-changed = tools changed
smcp-unknown-command-see-help = unknown command; see `help`
smcp-waiting-for = waiting for

spending-amount = { $cost } ({ $tokens } tokens)
spending-estimated = , of what was spent { $amount } is an estimate: the model service did not say what it used, or the request broke off
spending-line = { $scope }  spent { $spent }, reserved { $reserved }, { $requests } requests
spending-none = Nothing was spent today.
spending-raised = raised by { $amount }, by { $by }

state-closed = closed
state-failed = failed
state-idle = idle
state-running = running
state-waiting_for_decision = waiting

stop-cancelled = cancelled
stop-end_turn = ended
stop-failed = failed
stop-max_tokens = cut at the token limit
stop-max_turn_requests = stopped at the step limit
stop-refusal = refused by the model

tools-about = description
tools-away = away
tools-calls = calls
tools-connected = connected
tools-draining = draining
tools-flags = flags
tools-none = No worker offers tools to this server.
tools-owner = owner
tools-process = process
tools-ready = ready
tools-session = session
tools-state = state
tools-tool = tool
tools-version = version
tools-worker = worker
top-calls = calls
top-counts = { $running } running · { $waiting } waiting for a decision
top-cut-off = cut off
top-does-not-answer = {" "}· ✗ does not answer
top-faults = faults
top-faults-by-code = Faults by code
top-faults-by-user = Faults by user
top-held = held
top-last = last
top-last-events = Last events
top-model-services = Model services
top-nodes = Nodes
top-none = none
top-not-available-remotely-see-the-servers = not available remotely; see the server's web page
top-not-recovered = not recovered
top-open = open
top-q-quit-w-window-sessions = q quit · w window · ↑/↓ sessions
top-reading-the-journal = reading the journal …
top-recovered = recovered
top-recovery = recovery
top-retries = retries
top-doubts = in doubt
top-sessions = Sessions
top-steps = steps
top-still-counting = still counting
top-turns = turns
top-under-way = under way
top-until = until
top-waiting = waiting

transcript-allow-call = allow call?
transcript-allowed-by = allowed by
transcript-calls-with-unknown-outcome = calls with unknown outcome:
transcript-cancelled-by = cancelled by
transcript-cannot-tell = cannot tell
transcript-closed-by = closed by
transcript-denied-by = denied by
transcript-did-not-happen = did not happen
transcript-dropped-a-late-result-of-turn = dropped a late result of turn
transcript-expired = expired
transcript-in = in
transcript-next-try-in = next try in
transcript-not-recovered = not recovered
transcript-older-messages-summarised = older messages summarised:
transcript-queued-message-withdrawn-by = queued message withdrawn by
transcript-reconciling = what became of its interrupted call?
transcript-recovered-after = recovered after
transcript-repaired = repaired:
transcript-requests-waiting-before-this-one = requests waiting before this one:
transcript-resumed = resumed
transcript-retrying-the-failed-turn = retrying the failed turn
transcript-session-closed = session closed
transcript-session-ended-with-an-error = session ended with an error
transcript-the-service-does-not-work = the service does not work,
transcript-the-service-is-busy = the service is busy,
transcript-tokens = tokens
transcript-tries = tries,
transcript-try = try
transcript-try-2 = try
transcript-turn = turn
transcript-unfinished-answer-above-discarded = unfinished answer above discarded
transcript-unknown-outcome-settled-by = unknown outcome settled by
transcript-still-runs = still runs; waiting for its end
transcript-was-done = was done

turn-number = turn { $count }

watch-allow-call = allow call?
watch-denied-there-is-no-terminal-to = {"  "}Denied: there is no terminal to ask on. To allow such calls: `--permission auto`
watch-for-details = For details:
watch-nobody-could-be-asked = { $calls } needed approval and nobody could be asked, so the task may be incomplete. To allow such calls: --permission auto
watch-answer-does-not-fit = {"  "}The answer does not fit: { $mismatches }
watch-declined-there-is-no-terminal = {"  "}Declined: there is no terminal to ask on.
watch-opened-y-yes-n-no = {"  "}Opened? [y] yes  [n] decline >{" "}
watch-fill-in-y-yes-n-no = {"  "}Answer? [y] yes  [n] decline >{" "}
watch-y-yes-n-no = {"  "}[y] yes  [n] no >{" "}

missing-part = `{ $setting }` needs the part `{ $part }`, which this program was built without.
    To build it in, run: { $command }
