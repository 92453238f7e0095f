# Texts for the editor.

editor-options-all-calls-run-without-asking = All calls run without asking
editor-options-ask = Ask
editor-options-auto = Auto
editor-options-default = Default
editor-options-high = High
editor-options-low = Low
editor-options-medium = Medium
editor-options-mode = Mode
editor-options-model = Model
editor-options-off = Off
editor-options-only-read-only-calls-run-nothing = Only read-only calls run; nothing is written or executed
editor-options-plan = Plan
editor-options-read-only-calls-run-without-asking = Read-only calls run without asking; all other calls ask first
editor-options-thinking = Thinking

input-address = { $server } asks you to open an address at { $host }: { $message } ({ $url })
input-leave-out = Leave out
input-opened = I have opened it
input-question = { $server } asks: { $message }
input-yes = Yes
outcome-the-model-declined-to-answer = The model declined to answer.

permission-allow = Allow
permission-always = Always allow `{ $tool }` in this session
permission-never = Never allow `{ $tool }` in this session
permission-reject = Reject

project-older-messages-were-summarised-for-the = Older messages were summarised for the model
project-the-answer-was-interrupted-and-starts = The answer was interrupted and starts again
project-the-failed-turn-continues = The failed turn continues
project-the-session-was-resumed = The session was resumed

user-question-another-answer = Another answer
user-question-do-not-answer = Do not answer
user-question-the-agent-asks = The agent asks

wait-held =
    { $seconds ->
        [none] { $what }; requests waiting before yours: { $before }
       *[other] { $what }; next try in { $seconds } s; requests waiting before yours: { $before }
    }
wait-retry = { $what }; retrying in { $seconds } s (try { $next } of { $max })

wait-service-busy = The service is busy
