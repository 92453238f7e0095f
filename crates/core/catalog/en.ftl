### The words of the fault catalog, in English.
###
### One message per kind, named after it, with these attributes:
###
###   .title   a few words, no full stop
###   .model   what the model reads: the facts of this failure in a sentence or two
###   .user    what a person reads: what happened, why, what to do; no jargon, and no promise of
###            another try: that is `retry-scheduled`, said only when there is one
###   .about   what the kind means, for its page
###   .check   what an operator looks at, for its page
###   .rec-1 … what the user of a front end can do, most useful first: wait, send again, answer
###            differently, change a setting, ask the operator
###   .next-1 … what the model does with its call, most useful first: change it, use another tool, tell
###            the user, stop; nothing that only people can do
###
### A fact that may be absent arrives as the word "none": choose with a [none] variant. Facts listed in
### `always` of the kind's row can be used as they are. `_ms` facts are also there as `_seconds`.
### `cargo xtask codegen` checks all of this, and that both languages have the same messages.

## VAL: input that does not fit

constraint-violated =
    .title = A constraint is not met
    .model = The constraint { $constraint } is not met.
    .user = The input does not meet a rule: { $constraint }. Please correct it and send it again.
    .about = A value was of the right type but broke a rule, for example a number that must be greater than zero. Nothing was started. The sender corrects the value and sends it again; the same value will be refused again.
    .check = Usually nothing. If it comes from a form or a script of yours, make it check the rule before sending.
    .rec-1 = Change the value so that it meets the rule, then send it again
    .rec-2 = Send a different value; the same one is refused again
    .next-1 = Change the value so that it meets the rule, then make the call again
    .next-2 = Do not repeat the same value

invalid-arguments =
    .title = Arguments do not fit the tool
    .model = Invalid parameters: { $mismatches }
    .user = { $tool_name ->
        [none] A tool was called with the wrong input. The assistant has been told what to correct.
       *[other] { $tool_name } was called with the wrong input. The assistant has been told what to correct.
    }
    .about = The arguments are valid JSON but do not fit the schema the model was given. Every mismatch is listed at once, each with its place, what was expected and what was sent. The tool did not run.
    .check = If one tool is called wrongly again and again, its description or its schema misleads the model: add examples, or loosen what need not be strict.
    .rec-1 = Wait: the assistant corrects the call by itself
    .rec-2 = If it does not get it right, tell it which value to use
    .next-1 = Correct every listed place, then call the tool again
    .next-2 = Give every required parameter, with the type the schema names
    .next-3 = Do not repeat the same arguments

malformed-arguments =
    .title = Arguments are not valid JSON
    .model = { $position ->
        [none] The arguments are not valid JSON, so the tool did not run.
       *[other] The arguments are not valid JSON: the mistake is at byte { $position }. The tool did not run.
    }
    .user = The assistant called a tool with text that could not be read. It has been told.
    .about = What the model sent as arguments could not be parsed. Broken arguments are never executed, and they are not guessed at when the tool has side effects. The position and a short excerpt go back to the model.
    .check = If it happens often with one model, its output may be cut off: look at the output token limit and at streamed arguments that end early.
    .rec-1 = Wait: the assistant writes the call again
    .rec-2 = If it keeps happening, ask for the work in smaller steps
    .next-1 = Send the arguments as one complete JSON object
    .next-2 = Escape quotes, backslashes and line breaks inside strings
    .next-3 = If the arguments are long, split the work into smaller calls

schema-refused =
    .title = Tool schema refused
    .model = { $reason ->
        [none] The tool { $tool_name } is not available: its schema cannot be used.
       *[other] The tool { $tool_name } is not available: its schema cannot be used ({ $reason }).
    }
    .user = The tool { $tool_name } could not be added, because its description is faulty. The other tools work.
    .about = A tool brought a schema that does not compile, so its arguments could never be checked. It is refused when it is registered and not at the first call. All other tools stay available.
    .check = Look at the schema the tool or its MCP server announces; the reason names the place. Correct it and register the tool again.
    .rec-1 = Go on without this tool
    .rec-2 = Ask the operator to correct the description of the tool
    .next-1 = Use another tool, or none
    .next-2 = Tell the user that this tool is not available if there is no other way

answer-schema-refused =
    .title = Schema of the answer refused
    .model = The schema of the final answer cannot be used: { $reason }
    .user = { $service ->
        [none] The schema of the answer cannot be used: { $reason }
       *[other] { $service } does not accept the schema of the answer: { $reason }
    }
    .about = A session can have a JSON Schema for its final answers. The schema is checked before the session uses it: it must compile and must admit some value. A service may refuse a schema that is correct; it is then asked for the answer by a tool call, and if it refuses that too, the turn ends.
    .check = Read the reason. Services take a part of JSON Schema only: objects with named properties, lists, texts, numbers and fixed choices always work.
    .rec-1 = Correct the schema, or make it simpler, and send the message again
    .rec-2 = Choose a model of another service, or leave the schema out
    .next-1 = Say that the answer cannot be given in the wanted form

time-in-past =
    .title = The time is past
    .model = The time { $due_at } is not in the future: it is { $now } now.
    .user = The timer was not set: { $due_at } is past. The server's clock says { $now }.
    .about = A timer is set for a time in the future. The time that was given is past on the clock of the server, so nothing was set. A clock that is wrong, or a time without the right zone, is the usual reason.
    .check = Compare the clocks of the sender and of the server. Times are in UTC unless they name an offset.
    .rec-1 = Give a later time, or a number of milliseconds from now
    .rec-2 = Write the offset of your time zone with the time, as in 2026-11-18T09:00:00+08:00
    .next-1 = Give a later time, or seconds from now
    .next-2 = Write the offset of the time zone with the time

schedule-refused =
    .title = Schedule refused
    .model = The schedule cannot be used: { $constraint }.
    .user = The timer was not set. The rule that its schedule breaks: { $constraint }.
    .about = The schedule of a timer has five cron fields in a time zone. It is checked before the timer is set: it must be readable, fire at least once within the horizon, and not more often than the shortest period. Nothing was set.
    .check = The bounds are timer_period and timer_horizon in the configuration. Raise them only if sessions that wake so often, or so late, are wanted.
    .rec-1 = Correct the schedule and set the timer again
    .rec-2 = Use a single time if the work is to be done once
    .next-1 = Correct the schedule: minute, hour, day of month, month, day of week
    .next-2 = Give a time instead of a schedule for work that is done once

tool-name-refused =
    .title = Tool name refused
    .model = { $reason ->
        [none] The tool { $tool_name } is not available: its name cannot be used.
       *[other] The tool { $tool_name } is not available: its name cannot be used ({ $reason }).
    }
    .user = The tool { $tool_name } could not be added, because its name cannot be used. The other tools work.
    .about = A tool's name is empty, too long, has characters the model services do not accept, or is taken already. Two tools under one name would make every call a guess, so the second one is refused.
    .check = Rename the tool, or give its MCP server a prefix in the configuration.
    .rec-1 = Go on without this tool
    .rec-2 = Ask the operator to give the tool a name of letters, digits, `_` and `-` that no other tool has
    .next-1 = Use another tool, or none
    .next-2 = Tell the user that this tool is not available if there is no other way

bad-request =
    .title = Request does not fit the protocol
    .model = { $field ->
        [none] The request does not fit the protocol.
       *[other] The request does not fit the protocol: the field { $field } is missing or wrong.
    }
    .user = The request could not be understood, because something in it is missing or wrong. Please correct it and send it again.
    .about = A request or a handshake has a missing field, a wrong type or a value the protocol does not allow. It was refused before anything was done. The details name the field where that is known.
    .check = Compare what the client sends with the protocol's description. A client of another version is the usual cause.
    .rec-1 = Correct the named field and send the request again
    .rec-2 = Use versions of both programs that speak the same version of the protocol
    .next-1 = Correct what is missing or wrong in the call, then make it again
    .next-2 = Do not repeat it unchanged

malformed-json =
    .title = Message is not valid JSON
    .model = { $position ->
        [none] The message is not valid JSON.
       *[other] The message is not valid JSON: the mistake is at byte { $position }.
    }
    .user = A message could not be read. Please send it again; if that does not help, update the app you use.
    .about = A frame or a request body is not JSON. It was dropped, the connection stays open, and the answer says where the mistake is.
    .check = Look at what the client sends at that position. A body that was cut off on the way, or two messages in one frame, are the usual causes.
    .rec-1 = Send the message again; if that does not help, update the app
    .rec-2 = If you wrote the message yourself, check for text that was cut off or not escaped
    .next-1 = Send the arguments as one complete JSON object
    .next-2 = Escape quotes, backslashes and line breaks inside strings

invalid-utf8 =
    .title = Text is not UTF-8
    .model = { $position ->
        [none] The text is not valid UTF-8.
       *[other] The text is not valid UTF-8: byte { $position } does not belong there.
    }
    .user = The text has characters in an encoding that cannot be read. Please save or send it as UTF-8.
    .about = All text on the wire is UTF-8. Some bytes are not, which mostly means another encoding or a text that was cut in the middle of a character.
    .check = Find out which encoding the sender uses and convert at its side.
    .rec-1 = Save the text as UTF-8, then send it again
    .rec-2 = Send binary data as a file
    .next-1 = Write the arguments in UTF-8, without half characters
    .next-2 = Give binary data as base64, not as text

json-too-deep =
    .title = JSON is nested too deeply
    .model = The JSON is nested more deeply than allowed (levels at most: { $limit }).
    .user = The message has too many levels inside each other (the limit is { $limit }). Please send it in a flatter form.
    .about = Deep nesting is the cheapest way to make a parser run out of stack, so there is a limit. The message was not processed; the connection stays open.
    .check = Raise the limit only if an honest client needs it. Otherwise look at who sends such messages.
    .rec-1 = Send a flatter structure
    .rec-2 = Split the message into several
    .next-1 = Nest lists and objects less deeply
    .next-2 = Split the work into several calls

frame-too-large =
    .title = Message is too large
    .model = The message is larger than the limit of { $limit } bytes.
    .user = The message is too large (the limit is { $limit } bytes). Please send less at once, or attach it as a file.
    .about = A frame or a request body is above the limit for one message and was not processed. Far above it the connection is closed too, because reading on would cost memory for nothing.
    .check = Raise the limit if honest clients need it, in the server and in any proxy before it.
    .rec-1 = Send less at once, or attach the content as a file
    .rec-2 = Ask the operator to raise the limit if your messages have to be this long
    .next-1 = Split the content over several calls
    .next-2 = Write large data to a file and pass its path

unknown-event =
    .title = Unknown event
    .model = { $nearest ->
        [none] There is no event or method called { $event_name }.
       *[other] There is no event or method called { $event_name }. Close to it: { $nearest }.
    }
    .user = The app asked for something the server does not know ({ $event_name }). Please update the app or the server.
    .about = A client sent an event, a method or a command whose name is not known here. It was ignored, and the connection stays open. A misspelt name and a client that is newer than the server are the usual causes.
    .check = Compare the versions of client and server. The name is in the log line.
    .rec-1 = Update the app or the server so that their versions match
    .rec-2 = If you wrote the request yourself, use one of the known names
    .next-1 = Use a name that you were given, exactly as written
    .next-2 = Tell the user that this is not available here

duplicate-call-id =
    .title = Call id used twice
    .model = The call id { $call_id } was used before, so this call did not run. Every call needs an id of its own.
    .user = The assistant used one number for two actions. Only the first one ran; it has been told.
    .about = Two calls came with the same id. Results are matched to calls by id, so the second one could not be told from the first; it did not run and the first one keeps its result.
    .check = If a provider does this often, report it there; the ids are in the recorded answer.
    .rec-1 = Wait: the assistant makes the second call again if it needs it
    .next-1 = Make the call again with a fresh id
    .next-2 = Use the result of the first call if it is what you need

plan-coercion-failed =
    .title = Plan could not be read
    .model = { $mismatches ->
        [none] The plan does not have the expected form.
       *[other] The plan does not have the expected form: { $mismatches }
    }
    .user = The plan could not be read.
    .about = The model was asked for a plan and answered something that cannot be turned into tasks. It is told the places that do not fit and asked once more; if that is no plan either, the run ends. Tasks that were handed in and are no plan are refused at once.
    .check = If it happens often, make the plan's schema simpler, or use a model that keeps to schemas.
    .rec-1 = If the assistant has stopped, send the message again
    .rec-2 = Describe the task in fewer and clearer steps
    .next-1 = Write the plan again and correct every listed place
    .next-2 = Answer with the plan only, without text around it

## TIMEOUT: no answer in time

request-timed-out =
    .title = No answer in time
    .model = { $timeout_seconds ->
        [none] The request got no answer in time.
       *[other] The request got no answer within { $timeout_seconds } s.
    }
    .user = { $timeout_seconds ->
        [none] A service did not answer in time.
        [one] A service did not answer within { $timeout_seconds } second.
       *[other] A service did not answer within { $timeout_seconds } seconds.
    }
    .about = A service was asked and did not answer within its time limit. That usually passes, so the runtime asks again after a pause, if asking twice is safe. Other action is needed only when the tries are used up.
    .check = See whether one service or all of them are slow. Compare the elapsed time with the limit: answers that come just too late need a higher limit.
    .rec-1 = Send the message again in a little while
    .rec-2 = Ask for less at once, so that the answer comes sooner
    .rec-3 = Ask the operator whether the service is working, if it keeps happening
    .next-1 = Make the same call again a little later
    .next-2 = Ask for less in one call
    .next-3 = Use another source if this one stays silent

deadline-passed =
    .title = Deadline passed
    .model = { $tool_name ->
        [none] { $outcome_unknown ->
            [true] No answer within { $timeout_seconds } s: the deadline has passed.
           *[none] Stopped after { $timeout_seconds } s: the deadline had passed.
        }
       *[other] { $state ->
            [not_started] { $tool_name } did not start within { $timeout_seconds } s, its deadline. Nothing of it was done.
           *[none] { $outcome_unknown ->
                [true] { $tool_name } did not answer within { $timeout_seconds } s, its deadline. It was told to stop and did not confirm that it did.
               *[none] { $tool_name } was stopped after { $timeout_seconds } s: its deadline had passed.
            }
        }
    }
    .user = { $state ->
        [not_started] { $timeout_seconds ->
            [one] This did not start within the allowed { $timeout_seconds } second, so nothing of it was done. The assistant has been told.
           *[other] This did not start within the allowed { $timeout_seconds } seconds, so nothing of it was done. The assistant has been told.
        }
       *[none] { $outcome_unknown ->
            [true] { $timeout_seconds ->
                [one] This took longer than the allowed { $timeout_seconds } second and was told to stop. The assistant has been told.
               *[other] This took longer than the allowed { $timeout_seconds } seconds and was told to stop. The assistant has been told.
            }
           *[none] { $timeout_seconds ->
                [one] This took longer than the allowed { $timeout_seconds } second and was stopped. The assistant has been told.
               *[other] This took longer than the allowed { $timeout_seconds } seconds and was stopped. The assistant has been told.
            }
        }
    }
    .about = A tool did not finish by its hard deadline. A call that did not start in time, for example because nobody approved it, did nothing. A local tool was cancelled, and everything it had started was ended with it. A tool on another computer or of an MCP server was told to stop; without its confirmation the details carry outcome_unknown, and the call may still be running. Part of the work may already be done. The same call would most likely run into the same deadline.
    .check = If the work really takes that long, raise the deadline of this tool. Otherwise look at what it was waiting for.
    .rec-1 = { $state ->
        [not_started] If it waited for your approval, ask the assistant again and answer in time
       *[none] Wait: the assistant decides how to go on
    }
    .rec-2 = Ask for the work in smaller steps
    .rec-3 = Ask the operator for a longer time limit if the work needs it
    .next-1 = { $state ->
        [not_started] Go on with other work; it may have waited for a person's approval
       *[none] Split the work into smaller calls
    }
    .next-2 = { $state ->
        [not_started] Tell the user that the call did not start in time
       *[none] Check what was already done before you go on
    }
    .next-3 = Run a long command in the background and look at its output later

## RATE: too many requests

model-rate-limited =
    .title = Model rate limit reached
    .model = { $limit_per_minute ->
        [none] { $service } is limiting requests.
        [one] { $service } allows { $limit_per_minute } request per minute, and there were more.
       *[other] { $service } allows { $limit_per_minute } requests per minute, and there were more.
    }
    .user = { $wait_seconds ->
        [none] The model service is receiving too many requests.
        [0] The model service is receiving too many requests. It can be asked again now.
        [one] The model service is receiving too many requests. It can be asked again in { $wait_seconds } second.
       *[other] The model service is receiving too many requests. It can be asked again in { $wait_seconds } seconds.
    }
    .about = The model service accepts only so many requests or tokens a minute for this account. The runtime waits, at least as long as the service asks for, and tries again with growing pauses. No work is lost while it waits.
    .check = See how many sessions share the account. Ask the provider for a higher limit, run fewer sessions at once, or spread them over the day.
    .rec-1 = Send the message again in a little while
    .rec-2 = Run fewer sessions at once
    .rec-3 = Choose another model, or ask the operator for a higher limit
    .next-1 = Go on without this result, or make the call again later
    .next-2 = Tell the user that the model service is limiting requests

service-rate-limited =
    .title = Service rate limit reached
    .model = { $service ->
        [none] The service behind this tool is limiting requests.
       *[other] { $service } is limiting requests.
    }
    .user = { $wait_seconds ->
        [none] A service the assistant uses is receiving too many requests.
        [0] A service the assistant uses is receiving too many requests. It can be asked again now.
        [one] A service the assistant uses is receiving too many requests. It can be asked again in { $wait_seconds } second.
       *[other] A service the assistant uses is receiving too many requests. It can be asked again in { $wait_seconds } seconds.
    }
    .about = A service that a tool depends on accepts only so many requests in a given time. If the tool says that repeating is safe, the runtime waits and calls it again; otherwise the model decides.
    .check = See which tool calls the service so often, and whether its answers could be kept for a while.
    .rec-1 = Wait a minute, then send the message again
    .rec-2 = Ask the operator for a higher limit at this service, if it keeps happening
    .next-1 = Make the same call again after the pause
    .next-2 = Put several questions into one call
    .next-3 = Go on with other work in the meantime

## AUTH: keys and sign-ins

model-authentication =
    .title = Model service refused the key
    .model = { $service } did not accept the credentials.
    .user = Signing in to the model service { $service } failed: the key is missing, wrong or expired. Nothing can go on until it is replaced.
    .about = The model service did not accept the key or the sign-in. Trying again cannot help, so the run ends at once and says so. The key itself is never logged or shown.
    .check = { $required_config ->
        [none] Set the key of this service again, and make sure that it belongs to the right account and has not expired. Then restart the session.
       *[other] Set { $required_config } again, and make sure that it belongs to the right account and has not expired. Then restart the session.
    }
    .rec-1 = { $required_config ->
        [none] Set a valid key for { $service }, or sign in again
       *[other] Set { $required_config } to a valid key, or sign in again
    }
    .rec-2 = Send the message again afterwards; nothing was lost
    .next-1 = Do not make this call again
    .next-2 = Tell the user that the model service does not accept its key

not-authenticated =
    .title = Not signed in
    .model = The request came without valid credentials.
    .user = You are not signed in, or your sign-in has expired. Please sign in and try again.
    .about = A client asked without credentials, or with ones that are not accepted. The answer does not say which of the two, so that names cannot be guessed.
    .check = Check the token the client sends, its expiry, and the clocks of both machines.
    .rec-1 = Sign in again, or send a valid token
    .rec-2 = Ask the operator for a new token if the old one has expired
    .next-1 = Do not make this call again
    .next-2 = Tell the user that the sign-in is missing or has expired

upstream-sign-in-needed =
    .title = Tool server needs a sign-in
    .model = The tool server { $mcp_server } needs a sign-in that only a person can do.
    .user = { $uri ->
        [none] The tool server { $mcp_server } needs you to sign in before it can be used.
       *[other] The tool server { $mcp_server } needs you to sign in before it can be used: { $uri }
    }
    .about = The service behind a tool has never been authorised, or asks for a sign-in. A person has to do that once in a browser. The call is not repeated by itself, because every repeat would ask again.
    .check = Start the sign-in of this MCP server at the computer where it runs. Look at whether it can keep what it is given.
    .rec-1 = { $uri ->
        [none] Sign in to { $mcp_server }
       *[other] Open { $uri } and sign in to { $mcp_server }
    }
    .rec-2 = Then ask the assistant to go on
    .next-1 = Ask the user to sign in to { $mcp_server }
    .next-2 = Go on without this tool until that is done

upstream-sign-in-refused =
    .title = Tool server refused the sign-in
    .model = The tool server { $mcp_server } refused its sign-in: it has expired, was revoked, or does not cover this call.
    .user = The sign-in for the tool server { $mcp_server } is no longer enough. Please sign in again and grant what it asks for.
    .about = There is a sign-in for the service behind the tool, but it was refused: expired and not renewable, revoked, or without the needed rights. Repeating the call cannot help.
    .check = Renew the authorisation of this MCP server and compare the rights it has with the rights it asks for.
    .rec-1 = Sign in to { $mcp_server } again and grant the rights it asks for
    .rec-2 = Then ask the assistant to go on
    .next-1 = Ask the user to sign in to { $mcp_server } again with the needed rights
    .next-2 = Go on without this tool until that is done

mcp-login-needed =
    .title = Tool server needs a login
    .model = { $auth_action ->
        [more_rights] The login to the tool server { $mcp_server } does not cover this call. Only a person can extend it.
        [login_expired] The login to the tool server { $mcp_server } has expired. Only a person can renew it.
        [none] The tool server { $mcp_server } needs a login that only a person can do.
       *[other] The tool server { $mcp_server } needs a login that only a person can do.
    }
    .user = { $auth_action ->
        [more_rights] Your login to the tool server { $mcp_server } does not cover what was asked. Extend it with: { $command }
        [login_expired] Your login to the tool server { $mcp_server } has expired. Renew it with: { $command }
        [none] You are not logged in to the tool server { $mcp_server }. Log in with: { $command }
       *[other] You are not logged in to the tool server { $mcp_server }. Log in with: { $command }
    }
    .about = A remote MCP server wants an OAuth login and there is none, it has expired and cannot be renewed, or the server wants more rights than were granted. A person logs in once in a browser; afterwards the tokens renew themselves.
    .check = Run budao mcp status to see the logins, and budao mcp login with the name of the server on the machine where Budao runs. With several servers, check that all of them use the same file of logins.
    .rec-1 = Run { $command }
    .rec-2 = Then ask the assistant to go on
    .next-1 = Ask the user to run { $command }
    .next-2 = Go on without this tool until that is done

mcp-login-failed =
    .title = Login to a tool server failed
    .model = The login to the tool server { $mcp_server } failed: { $reason }.
    .user = The login to the tool server { $mcp_server } failed: { $reason }.
    .about = A login to a remote MCP server was begun and did not end well: its authorization server could not be found, says something that cannot be trusted, rejected the login, or the answer does not belong to it. Nothing was stored.
    .check = Compare the URL of the server in the configuration with the one its operator documents. If the authorization server registers no clients by itself, set oauth.client_id.
    .rec-1 = Check the URL of { $mcp_server } and try again
    .rec-2 = Ask the operator of { $mcp_server } if the reason stays the same
    .next-1 = Tell the user that the login to { $mcp_server } failed
    .next-2 = Go on without this tool until that is done

## PERM: permissions and questions

denied-by-policy =
    .title = Denied by policy
    .model = { $reason ->
        [none] The policy does not allow { $tool_name } here. The call did not run.
       *[other] The policy does not allow { $tool_name } here: { $reason }. The call did not run.
    }
    .user = { $tool_name } is not allowed by the rules that are set, so it was not run.
    .about = A rule of the configuration forbids this call. It did not run, and asking again will give the same answer. The turn goes on, so that the model can find another way.
    .check = If the call should be allowed, change the permission rules; the rule that decided is in the record of the call.
    .rec-1 = If it should be allowed, change the rule in the settings or ask the operator to
    .rec-2 = Otherwise do nothing: the assistant has been told and looks for another way
    .next-1 = Reach the goal in a way that does not need this call
    .next-2 = If there is no other way, tell the user what is not allowed and why it would be needed
    .next-3 = Do not try to get around the rule

denied-by-person =
    .title = Denied by a person
    .model = { $note ->
        [none] A person decided that { $tool_name } must not run. The call did not run.
       *[other] A person decided that { $tool_name } must not run, and wrote: { $note }
    }
    .user = { $tool_name } was not run, because it was denied.
    .about = A person was asked whether the call may run and denied it. The person's note, if there is one, is passed to the model word for word. The turn goes on.
    .check = Nothing. If the same question is denied all the time, a policy rule saves people the asking.
    .rec-1 = Tell the assistant what you want instead
    .rec-2 = If the answer was a mistake, ask the assistant to do it again and allow it this time
    .next-1 = Respect the decision and do not make the same call again
    .next-2 = { $note ->
        [none] Reach the goal in another way
       *[other] Take the note into account and go another way
    }
    .next-3 = If you are unsure what is wanted, ask the user

denied-by-hook =
    .title = Denied by a hook
    .model = { $reason ->
        [none] A hook did not allow { $tool_name }. The call did not run.
       *[other] A hook did not allow { $tool_name }: { $reason }. The call did not run.
    }
    .user = { $tool_name } was stopped by a check that is set up here, so it was not run.
    .about = A hook that runs before tool calls said no. It works as it was set up to; the call did not run and the turn goes on. A hook that breaks down is another fault.
    .check = If the decision is wrong, look at the hook; its name and its reason are in the record of the call.
    .rec-1 = Nothing to do: the assistant has been told the reason
    .rec-2 = Ask the operator if the check stops what it should let through
    .next-1 = Read the reason and change the call accordingly
    .next-2 = Reach the goal in a way that does not need this call

needs-confirmation =
    .title = Approval needed
    .model = { $reason ->
        [none] { $tool_name } needs a person's approval before it runs. It has not run.
       *[other] { $tool_name } needs a person's approval, did not get it and has not run: { $reason }.
    }
    .user = { $reason ->
        [none] { $tool_name } is waiting for your approval.
       *[other] { $tool_name } was not approved and has not run: { $reason }.
    }
    .about = The call may run only after a person has agreed. The question is kept, survives a restart, can be answered once and expires. Until then nothing happens.
    .check = Nothing, unless questions pile up: then see whether the people who should answer are told of them.
    .rec-1 = { $reason ->
        [none] Allow or deny the call in the session that asks
       *[other] If it should run, allow it on the computer that runs the tool, then ask the assistant again
    }
    .rec-2 = Do nothing if it should not run; it runs only after a yes
    .next-1 = Do not make the same call again before a person has approved it
    .next-2 = Tell the user which call needs approval, and why
    .next-3 = Go on with work that does not depend on this call

guard-failed =
    .title = Guard failed, call denied
    .model = The check { $hook }, which decides about this call, broke down. To be safe the call did not run.
    .user = A safety check could not be carried out, so the action was not run. The operator has to look at it.
    .about = A guard is a hook that was registered to decide. When it fails or takes too long there is no decision, so the call is denied. The turn goes on; other calls are decided as usual.
    .check = Look at the log of the guard with this trace id: an exception, a missing program or a time limit of five seconds are the usual causes.
    .rec-1 = Ask the operator to repair the check, and give the trace id
    .rec-2 = Go on with something that does not need this action
    .next-1 = Do not repeat this call; the check will most likely fail again
    .next-2 = Go on another way, and tell the user that a check is broken

question-expired =
    .title = Question expired unanswered
    .model = Nobody answered whether { $tool_name } may run, so it was denied.
    .user = The question whether { $tool_name } may run was not answered in time, so the answer is no. Ask the assistant again if you still want it.
    .about = A question for approval was open longer than its time limit. Silence counts as no. The turn goes on or ends with that answer.
    .check = See whether the people who should answer learn of questions in time. The time limit is a setting.
    .rec-1 = Ask the assistant again if you still want it; it has not run
    .rec-2 = Answer within the time the question shows, or ask the operator for a longer one
    .next-1 = Go on without this call; nothing of it was done
    .next-2 = Tell the user that the question has expired and can be asked again

question-not-open =
    .title = Question is not open
    .model = The question { $question_id } is not open: it was answered before, has expired, or never existed.
    .user = This question is no longer open. It may have been answered already.
    .about = An answer came for a question that is not waiting for one. The first answer counts, so that two people cannot decide differently. Nothing was changed.
    .check = Nothing. A client that answers twice should reuse its command id, then it gets the first result back.
    .rec-1 = Reload the session to see which questions are still open
    .rec-2 = Do not send the answer again

not-allowed =
    .title = Not allowed
    .model = { $event_name ->
        [none] This is not allowed with the present rights.
       *[other] { $event_name } is not allowed with the present rights.
    }
    .user = You do not have the right to do this. Ask the operator of the server if you need it.
    .about = The caller is known, but may not do this: another person's session, another role's command, a setting that is reserved. Repeating it will not change the answer.
    .check = Look at the rights of the token or role. If many are refused at once, see whether a client uses the wrong role.
    .rec-1 = Use an account or a role that has the right
    .rec-2 = Ask the operator for the right if you need it
    .next-1 = Do not make this call again as it is
    .next-2 = Tell the user which right is missing

answer-does-not-fit =
    .title = Answer does not fit the question
    .model = The answer to the question { $question_id } does not fit: { $mismatches }
    .user = The answer does not fit the form: { $mismatches }. The question is still open.
    .about = A tool server asked for values, and the answer has values that the form does not allow. Every mismatch is listed at once. Nothing was sent to the server, and the question waits for another answer.
    .check = Nothing, unless people cannot answer the form at all: then the server asks for values that nobody has.
    .rec-1 = Correct the listed values and answer again
    .rec-2 = Decline the question if the values are not known

## TOOL: calling tools

unknown-tool =
    .title = No tool has that name
    .model = { $nearest ->
        [none] There is no tool called { $tool_name }.
       *[other] There is no tool called { $tool_name }. Did you mean: { $nearest }?
    }
    .user = The assistant asked for a tool that does not exist ({ $tool_name }). It has been told which ones there are.
    .about = The model called a name that is not in the set of tools it was given. Nothing ran. The nearest names go back to it.
    .check = If the name looks right, see whether its MCP server or computer is connected, and whether a prefix was added to its tools.
    .rec-1 = Wait: the assistant chooses another tool
    .rec-2 = If the tool should be there, ask the operator to add it
    .next-1 = Use one of the tools you were given, with its exact name
    .next-2 = Go on without it if none of them fits

tool-disabled =
    .title = Tool is switched off
    .model = The tool { $tool_name } exists but is switched off.
    .user = The tool { $tool_name } is switched off here.
    .about = The tool is known, but the configuration of its server or of this session has switched it off. Calling it again gives the same answer until it is switched on.
    .check = Switch it on in the configuration of its MCP server, or take it out of the list that the model sees.
    .rec-1 = Switch the tool on in the settings, or ask the operator to, if it is needed
    .rec-2 = Otherwise let the assistant go on without it
    .next-1 = Use another tool
    .next-2 = Tell the user that { $tool_name } is switched off if there is no other way

tool-said-no =
    .title = Tool answered no
    .model = { $reason ->
        [none] { $tool_name } ran and reported a failure without a reason.
       *[other] { $reason }
    }
    .user = { $tool_name } could not do what was asked. The assistant has been told why.
    .about = The tool ran as it should and its answer is no: the thing is not there, the content does not match, the request is not possible. That is a result and not a breakdown; the tool's own words and advice go to the model.
    .check = Nothing, unless one tool says no all the time. Then read its reasons in the records.
    .rec-1 = Wait: the assistant has been told the reason and changes the call
    .rec-2 = If it gets no further, give it the missing information
    .next-1 = Read what the tool said and change the call accordingly
    .next-2 = Check that what you assume is really so before you call again

tool-failed =
    .title = Tool failed
    .model = { $reason ->
        [none] { $tool_name } failed while it was running.
       *[other] { $tool_name } failed while it was running: { $reason }.
    }
    .user = { $tool_name } failed. The assistant has been told and will look for another way.
    .about = The tool started and then failed in a way it did not describe itself, for example because something it depends on failed. The text of that error stays with the operator; the model learns which tool failed and what it may do.
    .check = Find the log line with this trace id: it has the whole chain of causes.
    .rec-1 = Wait: the assistant tries another way
    .rec-2 = If the tool keeps failing, ask the operator and give the trace id
    .next-1 = Try once more if the call is safe to repeat
    .next-2 = Check what was already done before you go on
    .next-3 = Use another tool or another way

tool-panicked =
    .title = Tool crashed
    .model = { $tool_name } crashed while it was running. Part of its work may be done.
    .user = { $tool_name } crashed. Everything else goes on; the operator can find the details by the trace id.
    .about = The code of the tool panicked. The panic was caught at the edge of the call, so the session and the other calls go on. It is a mistake in the tool and not in the call, although another call may avoid it.
    .check = Report it to the tool's author with the log lines of this trace id. A tool that crashes often can be run in a process of its own.
    .rec-1 = Check what the tool may have changed
    .rec-2 = Report it to the operator with the trace id
    .next-1 = Check what was already done
    .next-2 = Call it with different arguments, or use another tool

cancelled =
    .title = Cancelled
    .model = { $tool_name ->
        [none] Cancelled at the user's request.
       *[other] { $state ->
            [not_started] { $tool_name } was cancelled at the user's request before it started. Nothing of it was done.
           *[none] { $outcome_unknown ->
                [true] { $tool_name } was told to stop at the user's request, and did not confirm that it did.
               *[none] { $tool_name } was cancelled at the user's request. Part of its work may be done.
            }
        }
    }
    .user = Cancelled.
    .about = The turn, or the call in it, was cancelled. Model and tools were stopped, and everything they had started was ended. What was recorded until then stays.
    .check = Nothing.
    .rec-1 = Send a message when you want to go on
    .next-1 = Wait for the user's next message
    .next-2 = Do not take the work up again by yourself

outcome-unknown =
    .title = Outcome unknown
    .model = { $tool_name } had started when the program that ran it was interrupted or lost. It may or may not have done its work, and may still be running.
    .user = The program was interrupted while { $tool_name } was running. Whether it was finished is not known, and it may still be running; the assistant will check.
    .about = The process ended while a call was running, and nobody recorded how it ended. Because the tool is not known to be safe to repeat, it was not repeated: running it twice could do harm. The model is told to look first.
    .check = If you know how it ended, say so in the session. If the tool is safe to repeat, mark it as idempotent and it will be run again after a crash.
    .rec-1 = Do not have the work repeated before it is clear what was done; the assistant checks that first
    .rec-2 = Look yourself if it matters, and tell the assistant what you found
    .next-1 = Check whether the work was done before anything else
    .next-2 = Make the call again only if it is clear that nothing happened
    .next-3 = If you cannot find out, ask the user

output-too-large =
    .title = Output too large
    .model = { $path ->
        [none] The output is larger than the limit of { $limit } bytes.
       *[other] The output is larger than the limit of { $limit } bytes. All of it is in { $path }.
    }
    .user = The result was too long to show to the assistant in full (the limit is { $limit } bytes).
    .about = A tool gave back more than the model can usefully read. Beginning and end are passed on where that makes sense, and the full text is kept aside up to a limit of its own.
    .check = Nothing. If one tool does this all the time, give it a parameter to ask for less.
    .rec-1 = Nothing to do: the assistant asks for less
    .rec-2 = If you need all of it, ask the assistant to write it to a file
    .next-1 = Ask for less: a range of lines, a filter, a smaller directory
    .next-2 = Read the kept output piece by piece

repeated-call-stopped =
    .title = Same failing call stopped
    .model = { $mismatches ->
        [none] This is exactly the call to { $tool_name } that failed before, so it did not run again.
       *[other] This is exactly the call to { $tool_name } that failed before, so it did not run again. Still wrong: { $mismatches }
    }
    .user = The assistant repeated a call that cannot work, so it was stopped. If that goes on, the turn ends.
    .about = The model repeated an invalid call without changing it. It was answered without running, and told what is still the same. After the third one the turn ends, because a stuck model only costs money.
    .check = Look at the call in the records. Often the schema asks for something the model cannot know; say it in the tool's description.
    .rec-1 = Give the assistant the value it lacks, or tell it to go another way
    .rec-2 = Cancel the turn if it goes on like this
    .next-1 = Change what is named before you call again
    .next-2 = If you do not have the needed value, ask the user for it
    .next-3 = Use another tool or another way

tool-abandoned =
    .title = Tool ignored cancellation
    .model = { $tool_name } did not stop when it was told to and was left behind. Its result will not be used.
    .user = { $tool_name } did not stop when it was told to. The session goes on without it.
    .about = A tool was cancelled or had passed its deadline, and still did not end. The session does not wait for it: the call is closed, and whatever comes later is dropped and counted. The task may go on using the machine.
    .check = See which tool it is and make it check for cancellation. Many of these cost memory and threads; a restart frees them.
    .rec-1 = Check what the tool may have changed; it may still be running
    .rec-2 = Ask the operator to end it if it keeps running
    .next-1 = Do not call this tool again for the same work
    .next-2 = Check what it has changed so far
    .next-3 = Go on another way

late-result-dropped =
    .title = Late answer dropped
    .model = An answer came after its call had already been closed, and was dropped.
    .user = An answer came too late and was not used.
    .about = A tool or a model answered after the call had been closed by a deadline, a cancel or a restart. The outcome that was recorded first stays: a late answer never ends, feeds or colours another turn. It is counted.
    .check = A few of these are normal. Many of one tool mean that its deadline is a little too short.
    .rec-1 = Nothing to do: the recorded outcome counts
    .next-1 = Go by the outcome that was recorded
    .next-2 = Check the real state if the late answer would have mattered

unsupported-operation =
    .title = Operation not supported
    .model = { $reason ->
        [none] This operation is not supported.
       *[other] This operation is not supported: { $reason }.
    }
    .user = What was asked for is not supported here.
    .about = The tool, the service or the platform cannot do this at all, whatever the arguments are. It is not a passing condition.
    .check = Look at whether a newer version or another platform supports it.
    .rec-1 = Ask the assistant to reach the goal in another way
    .next-1 = Do not ask for this again
    .next-2 = Reach the goal in another way, or tell the user that it is not possible here

mcp-server-failed =
    .title = MCP server failed
    .model = { $reason ->
        [none] The tool server { $mcp_server } failed.
       *[other] The tool server { $mcp_server } failed: { $reason }.
    }
    .user = { $exit_code ->
        [none] The tool server { $mcp_server } failed.
       *[other] The tool server { $mcp_server } ended with exit code { $exit_code }.
    }
    .about = An MCP server ended, answered something that cannot be understood, or cannot be reached. The runtime starts it or connects again with growing pauses. Calls that had started are closed; those that are safe to repeat are repeated.
    .check = Look at the server's error output in the log, its command and its settings. Try to start it by hand with the same command.
    .rec-1 = Send the message again in a little while
    .rec-2 = Ask the operator to look at { $mcp_server } if it lasts
    .next-1 = Make the same call again a little later
    .next-2 = Use tools of another server in the meantime

computer-gone =
    .title = Remote computer is gone
    .model = { $outcome_unknown ->
        [true] The computer { $computer }, which offers this tool, is no longer connected. It had the call, and did not say how it ended.
       *[none] The computer { $computer }, which offers this tool, is no longer connected.
    }
    .user = The computer { $computer } is no longer connected, so its tools cannot be used. Please bring it back online.
    .about = The computer whose tools are used has left its room or lost its connection. Calls in flight are closed at once instead of running into their time limit. When it comes back its tools appear again.
    .check = See whether the computer is on and connected, and what its own log says about the last minutes.
    .rec-1 = Connect { $computer } again
    .rec-2 = Check there what was already done before the work is repeated
    .next-1 = Go on with tools of other computers, or without
    .next-2 = When it is back, check what was already done before you repeat a call

worker-missing =
    .title = No worker took the call
    .model = No worker { $worker } took the call of { $tool_name } within { $timeout_seconds } s. It did nothing.
    .user = The tool { $tool_name } runs in a worker named { $worker }, and none took the call within { $timeout_seconds } s. Please start the worker.
    .about = The tool is offered by a worker, a program that connects to the server. The call waited as long as the tool allows and no worker claimed it: none is connected, or all of them are busy. The call never began.
    .check = `budao tools` lists who offers what and which workers are connected.
    .rec-1 = Start the worker { $worker }, or more of them
    .rec-2 = Then send the message again
    .next-1 = Go on without this tool and say that its worker is missing
    .next-2 = The call did nothing, so it can be made again later

worker-lost =
    .title = The worker of a call is gone
    .model = { $outcome_unknown ->
        [true] The worker { $worker } had taken the call of { $tool_name } and is gone. Whether the call was done is unknown.
       *[none] The worker { $worker } had taken the call of { $tool_name } and is gone.
    }
    .user = The worker { $worker } went away while it ran { $tool_name }.
    .about = A worker claimed the call and then lost its connection, or ended, without a result. A call of an idempotent tool is offered again. Any other call may have been done, so it is never offered again and its outcome is unknown until the tool or a person settles it.
    .check = The log of the worker. `budao doubts` lists the calls whose outcome is unknown.
    .rec-1 = Find out why the worker { $worker } ended
    .rec-2 = Check what was done before the work is repeated
    .next-1 = Check with another tool what was done
    .next-2 = Do not repeat the call unless you know that it did nothing

call-not-open =
    .title = Call is not open
    .model = The call { $call_id } is not open: { $reason }.
    .user = The call { $call_id } is not open for this worker: { $reason }.
    .about = A worker claimed or ended a call that is not open for it: the call has ended, another worker has it, or it is another attempt. Nothing was changed. One worker has a call, and its first result counts.
    .check = Nothing. A worker that repeats a frame should reuse its command id, then it gets the first answer back.
    .rec-1 = Forget the call: another worker has it, or it is over
    .rec-2 = Do not run it

## FILE: files

file-not-found =
    .title = File not found
    .model = File not found: { $path }
    .user = The file { $path } does not exist.
    .about = A path was given that does not exist. Usually it is misspelt, moved, or meant relative to another directory. The nearest existing path is suggested where there is one.
    .check = Nothing.
    .rec-1 = Wait: the assistant looks for the right path
    .rec-2 = If you know where the file is, tell the assistant
    .next-1 = List or search for the file to find its right path
    .next-2 = Check spelling, letter case and the directory the path starts from
    .next-3 = Create the file first if it is meant to be new

file-permission =
    .title = No permission for the file
    .model = No permission for { $path }.
    .user = The program has no permission for { $path }. Change the permissions, or choose another place.
    .about = The operating system refused access to a file or a directory. The program keeps the rights it was started with and does not try to get around them.
    .check = Look at the owner and mode of the file, and at the user the program runs as. Sandbox rules can be the cause too.
    .rec-1 = Give the program permission for { $path }, or name another place
    .next-1 = Use another path that is writable
    .next-2 = Tell the user which permission is missing

outside-workspace =
    .title = Path is outside the workspace
    .model = The path { $path } is outside the workspace.
    .user = { $path } is outside the folder the assistant may work in, so it was not touched.
    .about = File tools work inside the workspace only. Absolute paths, `..` and links that lead out of it are refused before anything is opened.
    .check = If the path should be reachable, add its directory to the workspace.
    .rec-1 = Copy the file into the workspace if the assistant needs it
    .rec-2 = Otherwise do nothing: it was not touched
    .next-1 = Use a path inside the workspace, relative to its root
    .next-2 = Ask the user to bring the file into the workspace

file-changed =
    .title = File changed underneath
    .model = { $path } has changed since it was last read. Nothing was written.
    .user = { $path } was changed in the meantime. The assistant reads it again before it changes anything.
    .about = Between reading the file and writing it, its content changed. Writing would have destroyed that change, so nothing was written.
    .check = Nothing. If it happens all the time, find the program that rewrites the file, for example a formatter.
    .rec-1 = Nothing to do: the assistant reads the file again
    .rec-2 = Do not edit the file while the assistant is working on it
    .next-1 = Read the file again
    .next-2 = Make the change on the new content

edit-no-match =
    .title = Text to replace not found
    .model = { $line ->
        [none] The text to replace does not occur in { $path }. Nothing was changed.
       *[other] The text to replace does not occur in { $path }. The closest place is line { $line }. Nothing was changed.
    }
    .user = A change to { $path } did not fit its content, so nothing was changed. The assistant will look again.
    .about = An edit names a text that must be in the file, letter by letter, and it is not. Spaces, indentation or line endings are the usual difference; or the file looks different by now.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant reads the file again
    .next-1 = Read the file again and copy the text exactly, with its spaces and line breaks
    .next-2 = Use a shorter piece that surely occurs

edit-several-matches =
    .title = Text to replace found several times
    .model = The text to replace occurs { $matches } times in { $path }, and it is not clear which one is meant. Nothing was changed.
    .user = A change to { $path } could have meant several places, so nothing was changed. The assistant will be more exact.
    .about = An edit names a text that occurs more than once. Changing the first one would be a guess, so nothing was changed.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant names the place more exactly
    .rec-2 = If it should replace every occurrence, tell it so
    .next-1 = Add lines before and after, so that the text occurs only once
    .next-2 = Ask for all occurrences to be replaced if that is what you want

not-a-file =
    .title = Not a regular file
    .model = { $received ->
        [none] { $path } is not a regular file.
       *[other] { $path } is not a regular file but a { $received }.
    }
    .user = { $path } is not a file that can be opened as text.
    .about = The path leads to a directory, a device, a socket or something else that cannot be read or written like a file. Opening some of these would block for ever, so they are refused.
    .check = Nothing.
    .rec-1 = Wait: the assistant looks for the right file
    .rec-2 = If you know which file is meant, tell the assistant
    .next-1 = Give the path of a file
    .next-2 = List the directory to see which files are in it

file-not-text =
    .title = Not a text file
    .model = { $path } is not a text file, so it cannot be shown or edited as text.
    .user = { $path } is not a text file.
    .about = The file has bytes that are not text in any encoding we recognise. It was left as it is; editing it as text would destroy it.
    .check = Nothing.
    .rec-1 = Give the assistant a text version of the file if you have one
    .rec-2 = Otherwise the assistant looks for a command that can read it
    .next-1 = Use a command that understands this kind of file
    .next-2 = Look for a text version of the same content

file-unread =
    .title = File was not read before
    .model = { $path } exists, and it was not read in this session. Nothing was written.
    .user = The assistant was about to replace { $path } without having read it. It will read it first.
    .about = A file that exists was to be replaced as a whole, and the session has never seen what is in it. Writing would have destroyed something nobody looked at, so nothing was written.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant reads the file first
    .next-1 = Read the file first, then write it
    .next-2 = Use another path if you meant to make a new file

file-exists =
    .title = File exists already
    .model = { $path } exists already. Nothing was written.
    .user = { $path } exists already. Nothing was written; name another file, or move this one away first.
    .about = A command was told to write a new file, and something with that name exists. The command never replaces a file, so it wrote nothing and left the file as it is.
    .check = Nothing.
    .rec-1 = Name another file
    .rec-2 = Move the existing file away, then run the command again

## PROC: commands and shells

exit-status =
    .title = Command ended with an error
    .model = { $stderr_tail ->
        [none] The command ended with exit code { $exit_code }.
       *[other] The command ended with exit code { $exit_code }. The end of its error output: { $stderr_tail }
    }
    .user = A command ended with an error (exit code { $exit_code }). The assistant has been told.
    .about = A command ran to its end and reported failure by its exit code. That is an answer, like a failing test; the model reads the output and decides.
    .check = Nothing, unless the command works by hand. Then compare directory, environment and user.
    .rec-1 = Wait: the assistant reads the output and corrects the command
    .rec-2 = If something has to be installed or set up first, do that and tell the assistant
    .next-1 = Read the output to find the cause
    .next-2 = Correct the command or what it works on, then run it again

killed-by-signal =
    .title = Command was killed
    .model = The command was ended by { $signal } before it finished.
    .user = A command was ended from outside ({ $signal }) before it finished.
    .about = Something ended the command by a signal: a crash of its own, the system when memory runs short, or a person. Part of its work may be done.
    .check = For SIGKILL, look at the system's log for an out-of-memory kill. For SIGSEGV or SIGABRT, the program itself crashed.
    .rec-1 = Check whether memory ran short, or whether someone ended the command
    .rec-2 = Then ask the assistant to go on
    .next-1 = Check what was already done
    .next-2 = Run it with less work at once if memory may have run short

command-not-started =
    .title = Command could not start
    .model = { $reason ->
        [none] The command could not be started: { $command }
       *[other] The command could not be started ({ $reason }): { $command }
    }
    .user = A command could not be started. The program may not be installed.
    .about = The operating system could not start the program: it does not exist, is not executable, or its directory is missing. Nothing ran.
    .check = Check that the program is installed and in the search path of the user the process runs as.
    .rec-1 = Install the program if the assistant needs it: { $command }
    .rec-2 = Otherwise the assistant uses another one
    .next-1 = Check the name of the program, and whether it is installed
    .next-2 = Use another program that does the same

shell-unknown =
    .title = Unknown shell
    .model = { $allowed ->
        [none] There is no background shell { $shell_id }.
       *[other] There is no background shell { $shell_id }. Running: { $allowed }.
    }
    .user = The assistant asked for a background command that does not exist. It has been told.
    .about = Output was asked of a background shell whose id is not known in this session. A misspelt id, or a shell that was cleared away after it ended, are the usual causes.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant has been told which commands are running
    .next-1 = Use an id that was given when a background command was started
    .next-2 = Start the command again if its output is still needed

shell-lost =
    .title = Shell ended with a restart
    .model = The background shell { $shell_id } ended when the program restarted. Its further output is lost.
    .user = A background command ended because the program was restarted.
    .about = Background commands belong to the process that started them and end with it. After a restart they are not started again by themselves, because nobody knows whether that would be safe.
    .check = Nothing. Long-running services are better started outside of the agent.
    .rec-1 = Ask the assistant to start the command again if it is still needed
    .next-1 = Check what the command had done so far
    .next-2 = Start it again if it is still needed and safe to repeat

sandbox-unavailable =
    .title = Sandbox is not available
    .model = The command did not run, because the sandbox it must run in is not available.
    .user = The action was not run, because it may run in a sandbox only, and that does not work on this machine.
    .about = The configuration demands that commands run in a sandbox, and the operating system does not offer what it needs. Running without it would break the promise, so the command did not run.
    .check = Check the kernel version and whether the container allows sandboxing. Or change the setting, knowing what that means.
    .rec-1 = Ask the operator to set up the sandbox on this machine
    .rec-2 = Until then, ask for work that needs no commands
    .next-1 = Do not repeat the command
    .next-2 = Go on without commands, and tell the user that the sandbox is missing

## NET: the network

network-unavailable =
    .title = Network unavailable
    .model = { $service ->
        [none] The network is not available.
       *[other] The network is not available, so { $service } could not be reached.
    }
    .user = There is no network connection.
    .about = No way to the other side was found at all: no network, no route, or a firewall that swallows everything. The runtime tries again with growing pauses.
    .check = Check the machine's network, its proxy settings and the firewall.
    .rec-1 = Check the network connection
    .rec-2 = Send the message again when the network is back
    .next-1 = Make the call again later
    .next-2 = Go on with work that needs no network

name-not-resolved =
    .title = Name not found in DNS
    .model = The host name { $host } could not be resolved.
    .user = The address { $host } could not be found.
    .about = The name of a host could not be turned into an address. That passes when the name service was only briefly away, and stays when the name is misspelt.
    .check = Resolve the name by hand on the same machine. Check the configured address and the DNS settings, in containers above all.
    .rec-1 = Check the spelling of { $host } in the settings
    .rec-2 = Send the message again in a little while
    .next-1 = Check the spelling of the host name if you wrote it
    .next-2 = Go on without this address, and tell the user that it was not found

connection-refused =
    .title = Connection refused
    .model = { $service ->
        [none] The connection was refused: nothing is listening there.
       *[other] { $service } refused the connection: nothing is listening there.
    }
    .user = A service could not be reached, because it is not running or does not accept connections.
    .about = The machine was reached, but nothing accepts connections at that address. A service that is restarting looks like this, so the runtime tries again with growing pauses.
    .check = See whether the service runs, on which address and port it listens, and whether the configured one is the same.
    .rec-1 = Send the message again in a little while
    .rec-2 = Check that the service is running, and that its address is right
    .next-1 = Make the same call again a little later
    .next-2 = If it is refused again, tell the user that the service is not running

tls-failed =
    .title = Secure connection failed
    .model = { $host ->
        [none] No secure connection could be made.
       *[other] No secure connection to { $host } could be made.
    }
    .user = No secure connection could be made, so nothing was sent. The operator has to look at the certificates.
    .about = The encrypted connection failed: a certificate that is expired, unknown or for another name, or two sides with no method in common. We never fall back to an insecure connection.
    .check = Look at the certificate's dates and names, at the clock of this machine, and at whether a proxy puts its own certificate in between.
    .rec-1 = Ask the operator to check the certificate, the clock and the proxy setting
    .rec-2 = Do not switch the check off
    .next-1 = Do not make this call again, and do not go around the check
    .next-2 = Tell the user that no secure connection could be made

## RETRY: trying again

retry-after-too-long =
    .title = Asked to wait too long
    .model = { $service } asks for a pause of { $wait_seconds } s, which is longer than we wait.
    .user = { $wait_seconds ->
        [one] { $service } can be asked again only in { $wait_seconds } second. Please try again then.
       *[other] { $service } can be asked again only in { $wait_seconds } seconds. Please try again then.
    }
    .about = A service named a time before which it does not want to be asked again, and that time is beyond our ceiling. Holding a session open for so long would help nobody, so it fails at once and says when it can go on.
    .check = A pause this long mostly means a daily limit or an exhausted account. The ceiling is a setting.
    .rec-1 = Send the message again after the named time
    .rec-2 = Use another account or another service until then
    .next-1 = Go on without this result
    .next-2 = Tell the user how long the service asks to wait

## RES: memory, disk, quotas, limits

out-of-memory =
    .title = Out of memory
    .model = There was not enough memory for this.
    .user = There was not enough memory for this action. The rest goes on.
    .about = An action needed more memory than it was allowed or than the machine has. It was ended so that the process could live. Caches are emptied once and it is tried once more before it is reported.
    .check = Look at the memory of the machine and of this process, and at what ran at the same time. Lower the number of parallel calls, or give it more memory.
    .rec-1 = Ask for less at once
    .rec-2 = End other programs or sessions, or ask the operator for more memory
    .next-1 = Work on less data at once
    .next-2 = Run fewer things at the same time

disk-full =
    .title = Disk is full
    .model = { $path ->
        [none] The disk is full. Nothing more can be written.
       *[other] The disk is full: { $path } could not be written.
    }
    .user = The disk is full, so nothing more can be saved. Please free some space.
    .about = There is no room left where something should be written. Old data that may go is cleared away once and the write is tried once more; then the operator has to act. Room is kept in reserve, so that this fault itself can still be recorded.
    .check = Free space on that disk, or shorten the time sessions are kept. Look for large outputs in the temporary directory.
    .rec-1 = { $path ->
        [none] Free some space on the disk
       *[other] Free some space on the disk of { $path }
    }
    .rec-2 = Then send the message again
    .next-1 = Delete files that are no longer needed, after asking
    .next-2 = Write to another disk
    .next-3 = Tell the user that the disk is full

quota-exceeded =
    .title = Quota used up
    .model = { $rate_limit_reset ->
        [none] A quota is used up.
       *[other] A quota is used up. It is renewed at { $rate_limit_reset }.
    }
    .user = { $service ->
        [none] A quota is used up. Raise it, or wait until it is renewed.
       *[other] The quota at { $service } is used up. Raise it, or wait until it is renewed.
    }
    .about = An account or a machine may use only so much of something, and that is used up. Trying again does not help until the quota is renewed or raised.
    .check = Look at the account's usage. Decide whether the quota or the use of it should change.
    .rec-1 = { $rate_limit_reset ->
        [none] Raise the quota, or wait until it is renewed
       *[other] Raise the quota, or wait until { $rate_limit_reset }
    }
    .next-1 = Go on without this service
    .next-2 = Tell the user which quota is used up and when it is renewed

limit-reached =
    .title = A limit was reached
    .model = The limit { $limit_name } of { $limit } was reached.
    .user = A limit was reached: { $limit_name } ({ $limit }). Use less, or raise it in the settings.
    .about = Everything here has a bound, and this one was hit. It is named as in the configuration. What was beyond it was refused; what was within it goes on.
    .check = Look at whether the use is honest. If it is, raise the limit of that name; if not, find out who causes it.
    .rec-1 = Ask for less at once, or wait until other work is finished
    .rec-2 = Raise { $limit_name } in the settings, or ask the operator to
    .next-1 = Ask for less in one call
    .next-2 = Wait until an earlier call is finished, then make this one again

system-exhausted =
    .title = The system cannot start another call
    .model = { $limit_name ->
        [open_files] The call did not run: the process can open no more files.
        [threads] The call did not run: the process can start no more threads.
       *[other] The call did not run: the system has none left of { $limit_name }.
    }
    .user = { $limit_name ->
        [open_files] The server can open no more files, so this call did not run. The rest goes on.
        [threads] The server can start no more threads, so this call did not run. The rest goes on.
       *[other] The server ran out of { $limit_name }, so this call did not run. The rest goes on.
    }
    .about = A call needs a thread of its own, and the first call of a process needs a few file descriptors. The operating system gave none: a limit of the process, of its container or of the machine is reached. The call certainly did not begin. The next call asks again.
    .check = Compare what the process has with what it may have: `ls /proc/PID/fd | wc -l` and `ls /proc/PID/task | wc -l` with `cat /proc/PID/limits`, and `pids.max` of its cgroup. Raise `LimitNOFILE`, `LimitNPROC` or `TasksMax`, or find out what keeps so many open.
    .rec-1 = Try again in a moment
    .rec-2 = Ask the operator to raise the limits of the process
    .next-1 = Make this call again later; it has done nothing yet
    .next-2 = Run fewer calls at the same time

## MODEL: model services

model-permission =
    .title = Model not permitted
    .model = { $model ->
        [none] The account may not use this at { $service }.
       *[other] The account may not use { $model } at { $service }.
    }
    .user = The account at { $service } is not permitted to do this. Choose another model, or have the account's rights changed.
    .about = The key is valid, but the account may not use this model, this region or this feature. Trying again cannot help, so the run ends at once.
    .check = Look at the rights of the account and of the key at the provider. Some models have to be enabled first. A key of another region needs the address of its region in the model, for example `openai:NAME@https://eu.api.openai.com/v1`.
    .rec-1 = Choose a model that the account may use
    .rec-2 = Have the rights of the account extended
    .next-1 = Do not ask for this model again
    .next-2 = Tell the user that the account may not use it

model-quota =
    .title = Model quota used up
    .model = The account's quota at { $service } is used up.
    .user = { $rate_limit_reset ->
        [none] The account at { $service } has no credit or quota left. Please top it up.
       *[other] The account at { $service } has no quota left until { $rate_limit_reset }. Please top it up, or wait.
    }
    .about = The account has no credit left, or its monthly quota is used up. That is not a rate limit: it does not pass within minutes, so it is not repeated.
    .check = Look at billing and limits at the provider. Set an alarm there before it happens again.
    .rec-1 = Top up the account or raise its limit
    .rec-2 = Use another account or another model service
    .next-1 = Go on without this result
    .next-2 = Tell the user that the account has no quota left

model-overloaded =
    .title = Model service overloaded
    .model = { $service } is overloaded at the moment.
    .user = The model service is overloaded at the moment.
    .about = The service has more work than it can do, for everybody and not only for this account. It passes by itself; the runtime tries again with growing pauses.
    .check = Look at the provider's status page. If it lasts, switch to another model.
    .rec-1 = Send the message again in a little while
    .rec-2 = Use another model if it lasts
    .next-1 = Go on without this result, or make the call again later
    .next-2 = Tell the user that the model service is overloaded

model-server-error =
    .title = Model service failed
    .model = { $status ->
        [none] { $service } failed on its side.
       *[other] { $service } failed on its side (status { $status }).
    }
    .user = The model service had an error of its own.
    .about = The service answered that it failed inside. The request was in order as far as one can tell. It is repeated with growing pauses.
    .check = Look at the provider's status page. Give them the request id from the log if it goes on.
    .rec-1 = Send the message again in a little while
    .rec-2 = Use another model if it lasts
    .next-1 = Make the call once more
    .next-2 = If it fails again, tell the user that the model service has an error

model-connect-timeout =
    .title = Model service not reached in time
    .model = { $service } could not be reached within { $timeout_seconds } s.
    .user = { $timeout_seconds ->
        [one] The model service could not be reached within { $timeout_seconds } second.
       *[other] The model service could not be reached within { $timeout_seconds } seconds.
    }
    .about = No connection to the model service came about in time. Nothing was sent, so a repeat is safe and happens by itself.
    .check = Check network, proxy and firewall on the way to the provider.
    .rec-1 = Send the message again in a little while
    .rec-2 = Check the network if it lasts
    .next-1 = Make the call once more
    .next-2 = If it fails again, tell the user that the model service cannot be reached

model-first-token-timeout =
    .title = Model did not begin to answer
    .model = { $service } did not begin to answer within { $timeout_seconds } s.
    .user = { $timeout_seconds ->
        [one] The model did not begin to answer within { $timeout_seconds } second.
       *[other] The model did not begin to answer within { $timeout_seconds } seconds.
    }
    .about = The request was accepted, but the first piece of the answer did not come in time. Very long conversations and busy services cause this. The request is made again.
    .check = Compare with the length of the conversation. Raise the limit for first answers if this model really needs longer.
    .rec-1 = Send the message again in a little while
    .rec-2 = Shorten the conversation if it happens again
    .next-1 = Make the call again with a smaller task
    .next-2 = If it fails again, tell the user that the model does not answer

model-stalled =
    .title = Model stopped in mid-answer
    .model = { $service } stopped in the middle of its answer and sent nothing for { $timeout_seconds } s.
    .user = The model stopped in the middle of its answer.
    .about = The answer had begun, and then nothing came any more although the connection was open. What had come so far is not used as an answer; the request is made again.
    .check = Many of these point at a proxy that holds answers back. Otherwise look at the provider's status page.
    .rec-1 = Send the message again in a little while
    .rec-2 = Use another model if it lasts
    .next-1 = Make the call again with a smaller task
    .next-2 = If it fails again, tell the user that the model stops in the middle of its answer

model-stream-cut =
    .title = Model stream was cut
    .model = The connection to { $service } broke in the middle of an answer.
    .user = The connection to the model broke in the middle of its answer.
    .about = The connection ended before the answer did. A half answer is never taken for a whole one: the request is made again, and text already shown is marked as replaced.
    .check = Check proxies and load balancers on the way; many cut connections after a fixed time.
    .rec-1 = Send the message again in a little while
    .rec-2 = Ask for shorter answers if it always breaks after the same time
    .next-1 = Make the call again with a smaller task
    .next-2 = If it fails again, tell the user that the connection to the model breaks

model-malformed-stream =
    .title = Model stream not readable
    .model = The answer of { $service } could not be understood.
    .user = The model's answer could not be read.
    .about = The service sent something that is not in its own protocol: broken JSON, events in a wrong order, a part that belongs to nothing. It is not guessed at; the request is made again.
    .check = If it repeats, the provider has changed its protocol, or a proxy changes the answers. The beginning of what came is in the log.
    .rec-1 = Send the message again in a little while
    .rec-2 = Ask the operator to check the address and the protocol of the service if it lasts
    .next-1 = Make the call once more
    .next-2 = If it fails again, tell the user that the model's answer cannot be read

context-too-long =
    .title = Conversation too long for the model
    .model = The conversation is longer than { $service } accepts.
    .user = The conversation has become too long for the model.
    .about = Everything the model has to read is more than it accepts. The runtime shortens the history, keeping calls and their results together, and asks again. If that is not enough, the turn ends with this fault.
    .check = Look at which tool results fill the conversation. A model with a longer context, or smaller outputs, helps.
    .rec-1 = Begin a new session and give it a summary of this one
    .rec-2 = Ask the assistant to work with smaller pieces
    .rec-3 = Choose a model that reads longer conversations
    .next-1 = Give a sub-agent a smaller task and less text
    .next-2 = Ask tools for smaller results

output-limit =
    .title = Answer cut at the token limit
    .model = The answer was cut off, because it reached the limit for one answer.
    .user = The answer was longer than allowed and was cut off. You can ask to continue.
    .about = The model reached the number of tokens it may write in one answer. What it wrote until then is kept. A tool call that was cut in half did not run.
    .check = Raise the output limit if answers are often cut.
    .rec-1 = Ask the assistant to continue
    .rec-2 = Raise the output limit
    .next-1 = Go on where the answer was cut, in smaller parts

model-refused =
    .title = Model declined to answer
    .model = The model declined to answer, or a content filter stopped the answer.
    .user = The model declined to answer this. You can put it differently.
    .about = The model, or a filter of its provider, declined. That is a decision and not a breakdown, so it is not repeated. The turn ends as refused, and the session goes on with the next message.
    .check = If harmless requests are declined, look at the system prompt and at the provider's filter settings.
    .rec-1 = Put the request differently
    .rec-2 = Use another model if the request is in order
    .next-1 = Do not send the same request again
    .next-2 = Tell the user that the model declined

model-bad-request =
    .title = Model service rejected the request
    .model = { $service } rejected the request as not valid.
    .user = The model service rejected the request. This has to be looked at; sending it again will not help.
    .about = The service says that our request is wrong: a parameter it does not know, a history it does not accept. The same request will be rejected again, so it is not repeated.
    .check = Look at the settings of this model: parameters it does not support are the usual cause. If the settings are right, it is a mistake of ours; report it with the trace id.
    .rec-1 = Ask the operator to check the settings of the model, and give the trace id
    .rec-2 = Use another model until then
    .next-1 = Do not make the same call again
    .next-2 = Tell the user that the model service rejected the request

unknown-model =
    .title = Unknown model
    .model = { $nearest ->
        [none] There is no model called { $model }.
       *[other] There is no model called { $model }. Close to it: { $nearest }.
    }
    .user = There is no model called { $model }. Please choose another one in the settings.
    .about = The configured model does not exist at this service, has another name there, or was retired. The run cannot begin.
    .check = Compare the configured name with the provider's list.
    .rec-1 = { $nearest ->
        [none] Choose a model that the service offers
       *[other] Choose a model that the service offers, for example { $nearest }
    }
    .rec-2 = Check that the model belongs to the configured service
    .next-1 = Leave out the model, or use a name that you were given
    .next-2 = Tell the user that this model does not exist

empty-answer =
    .title = Model answered nothing
    .model = The model answered with nothing: no text and no call.
    .user = The model sent an empty answer.
    .about = The answer came to a proper end and has nothing in it. A turn that ends in silence looks like a finished one, so it is not accepted; the request is made again.
    .check = If one model does this often, look at its output limit and its stop sequences.
    .rec-1 = Send the message again in a little while
    .rec-2 = Send the message again in other words
    .next-1 = Make the call once more, with the task in other words
    .next-2 = If it fails again, go on without this result

usage-unknown =
    .title = Model service does not say what it used
    .model = { $service } did not report how many tokens its answer used, so an estimate is counted.
    .user = { $service } did not report how many tokens { $model ->
        [none] the model
       *[other] { $model }
    } used, so an estimate is counted. The turn goes on.
    .about = A service reports with each answer how many tokens it read and wrote. If it reports none, or counts that cannot be true, the request counts as its estimate: a quarter more than the text of its history and of its answer. Records, costs and caps have the estimate, marked as such. It is reported once in a session; the turn goes on, in an editor too.
    .check = Look at the end of an answer of the service: the counts are in `usage` (`usageMetadata` of Gemini). A proxy in between may remove them.
    .rec-1 = Update the service, or let the proxy in front of it pass `usage` on
    .rec-2 = Choose a model whose service reports its counts
    .next-1 = Nothing: the answer itself is complete

## TURN: the turn and its budgets

steps-exhausted =
    .title = Step limit reached
    .model = The turn reached its step limit ({ $limit }).
    .user = The assistant reached the step limit of this turn ({ $limit }) and stopped. Send a message to let it go on.
    .about = A turn may ask the model only so many times, so that a run in circles ends. Everything done until then is kept, and the next message begins with a fresh count.
    .check = Raise the limit if honest work needs more steps. Otherwise look at whether the model was going round in circles.
    .rec-1 = Send a message to go on from here
    .rec-2 = Give a smaller task, or raise the limit
    .next-1 = Use what there is, and name what is missing
    .next-2 = Make the call again with a smaller task

tokens-exhausted =
    .title = Token budget spent
    .model = The next request could exceed the token budget of the turn ({ $limit }). No further request is made.
    .user = This turn stopped, because its next request could exceed its token budget ({ $limit }). Send a message to let the assistant go on.
    .about = The settings of a session may limit how many tokens a turn uses in all its steps together (`max_turn_tokens`). A request whose estimate does not fit into what is left is not made. Everything done until then is kept. The cap of the configuration is `models.spending.turn_tokens`.
    .check = Look at which steps were so expensive; long tool results are read again in every step.
    .rec-1 = Send a message to go on from here
    .rec-2 = Give a smaller task, or raise the budget
    .next-1 = Use what there is, and name what is missing
    .next-2 = Make the call again with a smaller task

spending-cap-reached =
    .title = Spending cap reached
    .model = The next request could cost { $estimate }, and { $spent } of { $cap } are spent. No further request is made.
    .user = { $cap_scope ->
        [none] This turn stopped: the next request could cost { $estimate }, and { $spent } of the allowed { $cap } are spent. The operator set this cap as { $config_key }.
       *[other] This turn stopped: the next request could cost { $estimate }, and { $spent } of the { $cap } allowed today for { $cap_scope } are spent. The operator set this cap as { $config_key }.
    }
    .about = The configuration caps what a turn, a session, or all sessions, a tenant and a key in a day (UTC) may cost. Before each request, its estimate is reserved; if that would exceed the cap, no request is made and the turn ends. Everything done until then is kept. A request that a crash interrupted counts as spent.
    .check = Compare the cap in { $config_key } with the costs in the records of the session (`core.spending`).
    .rec-1 = { $cap_scope ->
        [none] Ask the operator to raise { $config_key }, then send a message to go on
       *[other] Ask the operator to allow more for today (`budao spending raise { $cap_scope } AMOUNT`) or to raise { $config_key }, then retry the turn
    }
    .rec-2 = Give a smaller task, shorten the answer, or choose a cheaper model
    .next-1 = Use what there is, and name what is missing

price-unknown =
    .title = Model without a price
    .model = { $model } has no price, so it cannot be asked under a spending cap.
    .user = { $model } was not asked: what it may cost is capped, and it has no price. The operator can set { $config_key }.
    .about = A cap in money works only if the price of the model is known. No price is assumed: the turn ends before the request.
    .check = Look for { $model } in [models.spending.prices]; the name is the one that sessions use.
    .rec-1 = Set { $config_key } to the prices per million tokens: input, cached_input, output
    .rec-2 = Choose a model that has a price, or remove the cap
    .next-1 = Say that the model cannot be asked until its price is set

failures-exhausted =
    .title = Too many failures in a row
    .model = { $times ->
        [one] The turn ended after { $times } failed call that could not be recovered.
       *[other] The turn ended after { $times } failed calls in a row.
    }
    .user = { $times ->
        [one] The assistant stopped after { $times } failed attempt. Please tell it how to go on.
       *[other] The assistant stopped after { $times } failed attempts in a row. Please tell it how to go on.
    }
    .about = One call after another failed without any progress, or the same invalid call came again and again. Going on would cost money and change nothing, so the turn ends. A success, or a new kind of failure, would have set the count back.
    .check = Read the failures in the session: they mostly have one cause, such as a missing program or a path that does not exist.
    .rec-1 = Read what failed, and say how to go on
    .rec-2 = Remove the cause first, then send the message again
    .next-1 = Do not give the same task again; change it, or do the work yourself
    .next-2 = Tell the user what failed

depth-exceeded =
    .title = Sub-agents nested too deeply
    .model = { $limit ->
        [one] A sub-agent may not start further ones: the limit is { $limit } level.
       *[other] A sub-agent may not start further ones here: the limit is { $limit } levels.
    }
    .user = The assistant passed work on too many times. It has been told to do the rest itself.
    .about = Agents may start agents, but only so many levels deep, so that they cannot multiply without end. The start was refused; the agent that asked goes on.
    .check = Raise the limit only if a plan really needs more levels.
    .rec-1 = Nothing to do: the assistant does the rest itself
    .next-1 = Do the work yourself instead of passing it on
    .next-2 = Give the result back to the agent that started you

budget-spent =
    .title = Spending limit reached
    .model = The spending limit of this run is reached.
    .user = The spending limit of this run is reached, so it was stopped. Raise the limit if it should go on.
    .about = A limit was set for what a run may cost, and it is reached. No further request is made. Everything done until then is kept.
    .check = Look at the cost of the session and decide on the limit.
    .rec-1 = Raise the spending limit, then send a message to go on
    .rec-2 = Give a smaller task
    .next-1 = Stop here and tell the user that the spending limit is reached

task-failed =
    .title = Task failed
    .model = { $reason ->
        [none] The task { $task_id } failed.
       *[other] The task { $task_id } failed: { $reason }.
    }
    .user = A part of the plan failed (task { $task_id }). The assistant goes on with what it has.
    .about = One task of a plan could not be solved after its own retries. The other tasks are not affected; the result is put together from what there is and says what is missing.
    .check = Read the faults of this task in the session; the last one is the cause.
    .rec-1 = Wait: the assistant goes on with the other results
    .rec-2 = Send the task again on its own if it is needed
    .next-1 = Plan this task differently, or divide it
    .next-2 = Use the results of the other tasks and name what is missing

## HOOK: hooks and listeners

hook-failed =
    .title = Hook failed
    .model = The hook { $hook } failed. The work goes on without it.
    .user = An additional step ({ $hook }) failed. The work goes on without it.
    .about = A hook threw an error or took longer than its time limit. Hooks cannot stop the flow by failing: the failure is recorded and the work goes on. A hook that must be able to stop calls is registered as a guard.
    .check = Look at the hook's own error in the log with this trace id.
    .rec-1 = Ask the operator to correct the hook { $hook }
    .next-1 = Go on; the call itself is not affected

listener-failed =
    .title = Listener failed
    .model = The listener { $listener } failed. The work goes on without it.
    .user = A listener ({ $listener }) failed. The work goes on.
    .about = A listener that is told of events threw an error or took too long. It was isolated, so the run and the other listeners did not notice. It may have missed events; they are in the journal.
    .check = Look at the listener's own error in the log with this trace id. Let it read what it missed from the journal.
    .rec-1 = Nothing to do in the session; the operator corrects { $listener }

## CONN: connections and replay

connection-lost =
    .title = Connection lost
    .model = The connection was lost.
    .user = The connection was lost. Reconnecting…
    .about = The connection between client and server broke. The run does not stop, and its events are kept. A client reconnects, names the last event it has seen and gets everything after it.
    .check = A few of these are normal. Many at once point at a proxy, a load balancer or a server restart; the close code tells which side ended it.
    .rec-1 = Wait: the app connects again and goes on where it was
    .rec-2 = Do not send the last message again; if it was accepted, it is answered
    .next-1 = Make the same call again a little later
    .next-2 = Go on with other tools in the meantime

history-gap =
    .title = Part of the history is missing
    .model = The events { $from_seq } to { $to_seq } are missing.
    .user = A part of this conversation can no longer be shown. What follows is complete.
    .about = Events between two positions cannot be given any more, and the exact range is named instead of hiding it. Everything after it follows in order.
    .check = Look at the reason in the details: retention, a damaged part of the journal, or an import that was not complete.
    .rec-1 = Read on after the gap; what follows is complete
    .rec-2 = Ask the operator for a backup if you need the missing part

history-expired =
    .title = History has expired
    .model = The history from that point on is no longer kept.
    .user = This conversation is too old to be continued where you left it. Please start a new one.
    .about = The client wants to go on from a point that retention has removed. What was there is gone for good. Newer events, if any, can still be read.
    .check = Nothing. The time that sessions are kept is a setting.
    .rec-1 = Start a new session
    .rec-2 = Read this one from the oldest part that is still kept

epoch-mismatch =
    .title = History was replaced
    .model = The history was replaced; positions from before are not valid any more.
    .user = This conversation was restored from another copy. It is being loaded again from the beginning.
    .about = The epoch names one life of a history. It changes only when the history was replaced, for example by a restored backup or an import. Old positions would point at other events, so they are refused.
    .check = Check that the import or restore was intended. If nobody did one, two journals may be mixed up.
    .rec-1 = Wait: the app loads the session again from the beginning
    .rec-2 = Reload the page if nothing happens

observer-too-slow =
    .title = Reader too slow
    .model = The reader did not keep up and was disconnected. It can resume.
    .user = Your connection was too slow for all the updates. Reconnecting…
    .about = A client read more slowly than the run produced, and its queue was full. The run never waits for one reader, so it was disconnected with a position to resume from. Nothing is lost.
    .check = Look at the client: a page in the background or a slow network are usual. The size of the queue is a setting.
    .rec-1 = Wait: the app connects again and goes on where it was
    .rec-2 = If it keeps happening, follow fewer sessions at once

shutting-down =
    .title = Server is stopping
    .model = The server is stopping. Work that is not finished is resumed when it is back.
    .user = The server is being restarted. You will be reconnected, and nothing is lost.
    .about = The server was asked to stop. It takes no new work, closes connections with a position to resume from, and picks unfinished turns up again after the start.
    .check = Nothing, if the stop was intended.
    .rec-1 = Wait a moment: the app connects again and goes on where it was
    .rec-2 = Send a message again only if it is still marked as not sent
    .next-1 = Make the same call again a little later

## STATE: signed state

upstream-cut =
    .title = Connection to the agent was cut
    .model = The connection to { $service } ended before its answer was complete.
    .user = { $state ->
        [silent] The agent sent nothing for longer than its limit, so the connection was closed. What had arrived is kept; what the agent did besides is not known.
        [overdue] The agent did not finish within its time limit, so the connection was closed. What had arrived is kept; what the agent did besides is not known.
        [restarted] The program was restarted while the agent was answering. What had arrived is kept; what the agent did besides is not known.
       *[other] The connection to the agent ended before its answer was complete. What had arrived is kept; what the agent did besides is not known.
    }
    .about = A foreign agent was answering a turn, and the connection to it ended without the event that ends a run. The text that had arrived stays in the session as an unfinished answer. The agent runs in another process: whether it goes on, and what it changed, cannot be known from here. The request is therefore not made again by itself, unless the configuration of this agent says `resubmit = true`.
    .check = Look at the log of the agent: did it crash, was it restarted, or does a proxy cut connections after a fixed time? If the agent may safely be asked twice, set `resubmit = true` for it.
    .rec-1 = Look at what the agent may already have done before you ask again
    .rec-2 = Then retry the turn or send another message; nothing is asked again by itself

upstream-refused =
    .title = Agent refused the request
    .model = { $service } refused the request with the HTTP status { $status }.
    .user = { $status ->
        [301] The address of the agent redirects to another one, which is not followed.
        [302] The address of the agent redirects to another one, which is not followed.
        [303] The address of the agent redirects to another one, which is not followed.
        [307] The address of the agent redirects to another one, which is not followed.
        [308] The address of the agent redirects to another one, which is not followed.
        [401] The agent wants a sign-in that it did not get (HTTP 401).
        [403] The agent does not allow this request (HTTP 403).
        [404] There is no agent at the configured address (HTTP 404).
        [405] There is something else than an agent at the configured address (HTTP 405).
       *[other] The agent refused the request with the HTTP status { $status }.
    }
    .about = The foreign agent answered with an HTTP status that says no, before a run began. The request is not made again by itself: most of these statuses stay the same until the agent or the configuration is changed. Redirects are never followed, because only the configured address may be asked.
    .check = Compare the configured address and token with those of the agent, and look for the request in its log.
    .rec-1 = { $status ->
        [401] Set the token of the agent in the configuration: `[engines.agui]`, key `token`
        [403] Set a token with the needed rights in the configuration: `[engines.agui]`, key `token`
        [404] Check the address after `agui:`; agents often listen on a path such as /agent or /agui
       *[other] Check that the address after `agui:` is that of an AG-UI agent
    }
    .rec-2 = Look at the log of the agent, then retry the turn

upstream-protocol =
    .title = Agent does not follow the AG-UI protocol
    .model = { $service } sent something that does not follow the AG-UI protocol.
    .user = { $cause ->
        [not_agui] What is at the configured address is not an AG-UI agent.
        [out_of_order] The agent sent its events in a wrong order, so its answer was stopped. What had arrived is kept; what the agent did besides is not known.
       *[other] The agent sent an event that cannot be read, so its answer was stopped. What had arrived is kept; what the agent did besides is not known.
    }
    .about = A foreign agent is read with tolerance: unknown events and fields, missing ends and older names are accepted. This answer was beyond that: no event stream at all, an event that is no JSON object with a type, or text for a message that was never begun. The run was left, and the turn ended as failed.
    .check = Update the AG-UI package of the agent, and look at its answer with curl. The details name the cause and, if there was one, the event.
    .rec-1 = { $cause ->
        [not_agui] Check that the address after `agui:` is that of an AG-UI agent
       *[other] Tell the operator of the agent; the details name the event
    }
    .rec-2 = Send another message; the session goes on

upstream-failed =
    .title = Agent reported an error
    .model = { $cause ->
        [none] { $service } reported that its run failed.
       *[other] { $service } reported that its run failed: { $cause }.
    }
    .user = { $cause ->
        [none] The agent reported an error and stopped. What had arrived is kept.
       *[other] The agent reported an error ({ $cause }) and stopped. What had arrived is kept.
    }
    .about = The foreign agent ended its run with an error of its own. Its words are in the log for the operator. What it did before the error stays done. The request is not made again by itself.
    .check = Look for the run in the log of the agent; its error message is among the causes of this fault.
    .rec-1 = Retry the turn, or send another message
    .rec-2 = Look at the log of the agent if it fails again

state-forged =
    .title = State was not signed by us
    .model = The saved state does not have a valid signature.
    .user = The saved state could not be verified, so it was not used. Please start a new session.
    .about = A client brought a saved state whose signature does not fit. It was changed, made by another program, or signed with a key that is no longer known. It was not used.
    .check = After a change of keys this is normal for a while. Otherwise see where it came from; it may be a forgery.
    .rec-1 = Start a new session
    .rec-2 = Do not send the same state again

state-expired =
    .title = State has expired
    .model = The saved state is too old to be used.
    .user = The saved state is too old. Please start a new session.
    .about = A signed state is valid for a limited time, so that a lost copy is not a key for ever. This one is past it.
    .check = Nothing. The time is a setting; compare the clocks if it seems wrong.
    .rec-1 = Open the session by its id if it still exists
    .rec-2 = Start a new session

state-reused =
    .title = State was used before
    .model = The saved state was used before; it is valid only once.
    .user = The saved state was used before, perhaps in another window. Please go on there, or start a new session.
    .about = A signed state resumes a session once. A second use by another command is refused, because two clients would believe they go on from the same point. The same command with the same id gets its first answer again.
    .check = If it happens to honest users, their client sends the state twice with different command ids.
    .rec-1 = Go on in the window that has the newest state
    .rec-2 = Open the session by its id, or start a new one

## SESS: sessions and commands

unknown-session =
    .title = Session not found
    .model = There is no session { $session }.
    .user = This session does not exist, or has been deleted. Please start a new one.
    .about = No session with this id is in the journal: it is misspelt, was removed after its time, or lives in another journal.
    .check = See whether the server uses the journal you think it uses, and how long sessions are kept.
    .rec-1 = Check the id of the session
    .rec-2 = Start a new session
    .next-1 = Do not use this session again; start another one if you need it

session-busy =
    .title = Session is busy
    .model = { $holder ->
        [none] The session { $session } is in use elsewhere at the moment.
       *[other] The session { $session } is in use by { $holder } at the moment.
    }
    .user = This session is in use elsewhere at the moment.
    .about = Another process is the writer of this session right now. One session has one writer at a time, so that nothing is written twice. Messages and cancels can still be handed in; the writer takes them up.
    .check = See which process holds the session. If it is dead, its hold ends by itself within seconds.
    .rec-1 = Try again in a few seconds
    .rec-2 = Go on in the window where the session is open
    .next-1 = Make the call again in a few seconds

command-repeated =
    .title = Command id used before
    .model = The command id { $command_id } was used before for something else.
    .user = The app sent two different requests under one number. Please send it again.
    .about = Commands carry ids, so that sending one twice does no harm: the same command gets its first answer again. This id came again with different content, so it is not clear what is meant; nothing was done.
    .check = The client makes its ids in a way that repeats, for example by counting from one after a restart.
    .rec-1 = Send the message again
    .rec-2 = If you write your own client, give every new command a fresh id

too-many-sessions =
    .title = Too many sessions
    .model = No more sessions can run at once (the limit is { $limit }).
    .user = The server is running as many sessions as it can. Please try again later.
    .about = Only so many sessions may run at once, so that those which do run stay quick. No new one was opened.
    .check = See whether sessions run that nobody needs. Raise the limit if the machine has room, or add a machine.
    .rec-1 = Try again later
    .rec-2 = Close sessions that are no longer needed
    .next-1 = Go on with the sessions that are running, or make the call again later

wrong-engine =
    .title = Session belongs to another engine
    .model = The session { $session } belongs to the engine { $engine }, which does not run here.
    .user = This session belongs to the engine { $engine }, and this program runs another one. Start it with --engine { $engine } to go on with the session.
    .about = A session is run by the engine that opened it: native (the built-in loop) or claude (the Claude CLI). The program that was asked runs the other one. Nothing was changed and no message was kept.
    .check = See which engine the program was started with (--engine), and which one the session's label `engine` names; without that label it is native.
    .rec-1 = Start the program with --engine { $engine }
    .rec-2 = Start a new session

unknown-timer =
    .title = Timer not found
    .model = No timer { $timer } is set in this session.
    .user = No timer { $timer } is set. It fired for the last time, was cancelled, or never existed.
    .about = A timer ends when it fires for the last time, when it is cancelled, and when its session is closed. A timer with the given id is not set now, so nothing was changed.
    .check = `budao timers` lists the timers that are set, with their sessions and next times.
    .rec-1 = List the timers of the session and use one of their ids
    .rec-2 = Do nothing: a timer that is not set does not fire
    .next-1 = List the timers and use one of their ids
    .next-2 = Go on: a timer that is not set does not fire

## CLI: external agent programs

cli-not-installed =
    .title = Agent program not installed
    .model = The program { $program } is not installed or was not found.
    .user = The program { $program } was not found. Please install it, or set its path.
    .about = The external agent program that this session should use could not be found on this machine. Nothing can begin without it.
    .check = Install it, or set its path in the configuration. An editor starts programs with another search path than a terminal does.
    .rec-1 = Install { $program }, or set its full path
    .rec-2 = Use the built-in engine instead

cli-exited =
    .title = Agent program exited
    .model = { $exit_code ->
        [none] The program { $program } ended before its answer was complete.
       *[other] The program { $program } ended with exit code { $exit_code } before its answer was complete.
    }
    .user = The agent program ended unexpectedly.
    .about = The external program ended in the middle of a turn. The turn ends as failed and is not repeated by itself, because nobody knows how much of its work is done. The next message starts the program anew, and it goes on from its last saved state. A turn that was cut is never shown as finished.
    .check = Its last lines of error output are in the log. Try the same command by hand.
    .rec-1 = Send the message again; the program is started anew
    .rec-2 = Check its version and its sign-in if it ends again

cli-silent =
    .title = Agent program went silent
    .model = The program { $program } has said nothing for { $timeout_seconds } s.
    .user = { $timeout_seconds ->
        [one] The agent program has not answered for { $timeout_seconds } second.
       *[other] The agent program has not answered for { $timeout_seconds } seconds.
    }
    .about = The external program runs but says nothing, longer than it ever should. It was asked to stop, then ended with everything it had started. The turn ends as failed and is not repeated by itself; the next message starts the program anew.
    .check = See what it was waiting for: a question nobody sees, the network, a tool without a time limit.
    .rec-1 = Send the message again
    .rec-2 = Raise the limit if its work really takes so long

cli-wrong-turn =
    .title = Answer belongs to another turn
    .model = An answer of { $program } belonged to another turn and was set aside.
    .user = The agent program answered an earlier message. That answer was set aside; the right one is awaited.
    .about = The external program sent a result that belongs to an earlier request. Taking it would end the present turn at once with the answer to another request. It is put with its own turn or dropped and counted, and the turn goes on waiting.
    .check = A few of these after a cancel are normal. Many of them are a fault of the program; report them there with its version.
    .rec-1 = Wait for the answer to the present message
    .rec-2 = Send the message again if none comes

cli-protocol =
    .title = Agent program not understood
    .model = The program { $program } said something that could not be understood.
    .user = The agent program uses a protocol that is not understood here. Please update one of the two.
    .about = Lines of the external program are not in the protocol we know. Unknown additions are ignored; this was something that could not be ignored.
    .check = Compare the program's version with the supported ones. The beginning of the line is in the log.
    .rec-1 = Update { $program }, or use a version that is known to work
    .rec-2 = Report it to the operator with the trace id

cli-turn-failed =
    .title = Agent program reported a failure
    .model = { $reason ->
        [none] The program { $program } reported that the turn failed.
       *[other] The program { $program } reported that the turn failed: { $reason }.
    }
    .user = The agent program could not finish this. You can send the message again.
    .about = The external program ended the turn itself and said that it failed while working. It is passed on as a failure, never as a finished turn. The session can go on with the next message.
    .check = Look at the reason and the request id in the log.
    .rec-1 = Send the message again
    .rec-2 = Start a new session if it fails again

## SMCP: rooms, computers, documents, skills, blobs

room-full =
    .title = Room already has an agent
    .model = { $holder ->
        [none] The room { $room } already has an agent.
       *[other] The room { $room } already has an agent: { $holder }.
    }
    .user = The room { $room } already has an agent. Use another room, or let that agent leave first.
    .about = A room has room for one agent, so that computers take orders from one place only. The second agent was refused; the first one is not affected.
    .check = See who is in the room. An agent that lost its connection leaves by itself after the heartbeat's time.
    .rec-1 = Join another room
    .rec-2 = Try again after the other agent has left
    .next-1 = Tell the user that the room already has an agent

room-not-found =
    .title = Room not found
    .model = There is no room { $room }.
    .user = The room { $room } does not exist.
    .about = The named room has no members. A room is created by the first join, so the name is usually misspelt, or all members have left.
    .check = Compare the names on both sides, letter by letter.
    .rec-1 = Check the name of the room
    .rec-2 = Join it first, or let the computer join
    .next-1 = Tell the user that the room does not exist

not-in-room =
    .title = Not in a room
    .model = This needs a room, and none was joined.
    .user = Please join a room first.
    .about = The request makes sense only inside a room, for example calling the tools of its computers. The caller is connected but has joined none, or was removed from it by a lost connection.
    .check = A client has to join again after every reconnect. See whether it does.
    .rec-1 = Join a room, then send the request again
    .rec-2 = After a reconnect, join again before anything else
    .next-1 = Tell the user that no room is joined

cross-room-access =
    .title = Other room refused
    .model = The target is in another room, which is not allowed.
    .user = This belongs to another room and cannot be reached from here.
    .about = Rooms are walls: an agent reaches only computers in its own room. A request to another room was refused and nothing was passed on.
    .check = If it is meant to work, put both into one room. If not, see who tried.
    .rec-1 = Ask for computers of your own room only
    .rec-2 = Join the other room if you need that computer
    .next-1 = Use only computers of this room
    .next-2 = Do not make this call again

computer-not-found =
    .title = Computer not found
    .model = { $nearest ->
        [none] There is no computer { $computer } in this room.
       *[other] There is no computer { $computer } in this room. Close to it: { $nearest }.
    }
    .user = The computer { $computer } is not in this room.
    .about = A call names a computer that is not in the room: misspelt, not connected, or in another room. Nothing was passed on.
    .check = List the computers of the room and compare the names. See whether the computer is connected.
    .rec-1 = Connect { $computer } to this room, or check its name
    .next-1 = List the computers of the room and use an exact name
    .next-2 = Ask the user to connect the computer

document-not-found =
    .title = Document not found
    .model = { $nearest ->
        [none] There is no document { $doc_ref }.
       *[other] There is no document { $doc_ref }. Close to it: { $nearest }.
    }
    .user = The document { $doc_ref } does not exist.
    .about = A reference names a document the Finder does not know. It may have been removed, or the reference is misspelt.
    .check = See whether the document was indexed and is still there.
    .rec-1 = Tell the assistant which document you mean
    .rec-2 = Check that the document is shared on that computer
    .next-1 = Search for the document, and use the reference you are given
    .next-2 = Ask the user which document is meant

page-out-of-range =
    .title = No such page
    .model = { $page_count ->
        [none] The document has no page { $page }.
        [one] The document has no page { $page }: it has { $page_count } page.
       *[other] The document has no page { $page }: it has { $page_count } pages.
    }
    .user = The document has no page { $page }.
    .about = A page was asked for that is beyond the end of the document, or below the first.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant asks for another page
    .next-1 = Ask for a page within the document
    .next-2 = Read the document's description first to learn how many pages it has

element-not-found =
    .title = Element not found
    .model = { $nearest ->
        [none] The document has no element { $element_id }.
       *[other] The document has no element { $element_id }. Close to it: { $nearest }.
    }
    .user = The part { $element_id } is not in the document.
    .about = A document was found, but it has no element with this id. Ids change when a document is indexed again.
    .check = See whether the document was indexed again in the meantime.
    .rec-1 = Nothing to do: the assistant reads the page again
    .next-1 = Read the page again and use the ids you find there
    .next-2 = Search the document for the text instead

document-uri-invalid =
    .title = Not a document address
    .model = { $reason ->
        [none] { $uri } is not a valid document address.
       *[other] { $uri } is not a valid document address: { $reason }.
    }
    .user = The address of a document is not valid.
    .about = A `dpe://` address is misspelt or has parts that do not belong together. Nothing was looked up.
    .check = Nothing, unless our own tools gave out the address. Then it is a mistake of ours.
    .rec-1 = Wait: the assistant looks for the document again
    .rec-2 = If you gave the address yourself, check it
    .next-1 = Use an address exactly as a tool gave it to you
    .next-2 = Search for the document to get a fresh address

version-mismatch =
    .title = Protocol versions do not fit
    .model = { $version ->
        [none] The two sides speak versions of the protocol that do not fit together.
       *[other] The other side speaks version { $version } of the protocol, which does not fit.
    }
    .user = The two programs are of versions that do not work together. Please update the older one.
    .about = Client and server compared their protocol versions when they connected, and they are not compatible. The connection was closed with the supported range; connecting again will not help.
    .check = Update the older side. The answer names both versions and the range that is supported.
    .rec-1 = Update the older of the two programs
    .rec-2 = Until then these two cannot connect
    .next-1 = Do not make this call again
    .next-2 = Tell the user that the versions do not fit together

mcp-server-not-found =
    .title = MCP server not found
    .model = { $nearest ->
        [none] There is no tool server { $mcp_server } here.
       *[other] There is no tool server { $mcp_server } here. Close to it: { $nearest }.
    }
    .user = The tool server { $mcp_server } is not set up here.
    .about = A request names an MCP server that this computer does not have. It is misspelt, was removed from the configuration, or goes by its bundle id and not by its display name.
    .check = Compare with the computer's configuration.
    .rec-1 = Set up { $mcp_server } if it is needed, or ask the operator to
    .next-1 = List the tools again and use the names you find there
    .next-2 = Ask the user to set the server up

capability-unsupported =
    .title = Capability not offered
    .model = The tool server { $mcp_server } does not offer { $capability }.
    .user = The tool server { $mcp_server } cannot do this.
    .about = An MCP server says at its start what it can do. Something else was asked of it, for example resources of a server that has tools only. It was not asked.
    .check = Nothing. A newer version of the server may offer it.
    .rec-1 = Ask the assistant to reach the goal in another way
    .rec-2 = Use another tool server if you need { $capability }
    .next-1 = Use what the server offers
    .next-2 = Reach the goal with another server

skill-name-invalid =
    .title = Not a skill name
    .model = { $skill } is not a valid skill name.
    .user = { $skill } is not a valid name of a skill.
    .about = Names of skills have one to three parts, divided by colons, in small letters, digits and dashes. This one does not, so nothing was looked up.
    .check = Nothing.
    .rec-1 = Nothing to do: the assistant looks at the list of skills
    .rec-2 = If you gave the name yourself, check its spelling
    .next-1 = Use a name exactly as the list of skills gives it
    .next-2 = List the skills first

skill-not-found =
    .title = Skill not found
    .model = { $nearest ->
        [none] There is no skill { $skill }.
       *[other] There is no skill { $skill }. Close to it: { $nearest }.
    }
    .user = The skill { $skill } does not exist here.
    .about = The name is well formed, but no such skill is installed, or the source it comes from is offline.
    .check = See whether the skill's source is connected and the skill is installed.
    .rec-1 = Add the skill on that computer if it is needed
    .next-1 = List the skills and use one of them
    .next-2 = Go on without it

skill-resource-unavailable =
    .title = Skill file not available
    .model = { $reason ->
        [none] A file of the skill { $skill } cannot be given.
       *[other] A file of the skill { $skill } cannot be given: { $reason }.
    }
    .user = A file of the skill { $skill } cannot be opened.
    .about = A file inside a skill was asked for and is not given: it does not exist, lies outside the skill, is protected, or is too large. For protected files the answer does not tell whether they exist.
    .check = Look at the reason in the details and at the skill's directory.
    .rec-1 = Nothing to do: the assistant looks for another file of the skill
    .rec-2 = If the file should be there, ask the author of the skill
    .next-1 = Ask only for files that the skill's description names
    .next-2 = Use a path inside the skill, without `..`

blob-unavailable =
    .title = Stored data not available
    .model = { $reason ->
        [none] The stored data cannot be given.
       *[other] The stored data cannot be given: { $reason }.
    }
    .user = Stored data is no longer available. It has to be made again.
    .about = Large results are handed over by a handle. This handle is not valid, belongs to another user, its data is gone by now, or the range that was asked for is beyond its end.
    .check = Handles live for a limited time. Raise it if readers really come that late.
    .rec-1 = Ask the assistant to make the data again
    .next-1 = Make the call again to get a fresh handle
    .next-2 = Read within the size that was announced

blob-write-failed =
    .title = Upload failed
    .model = { $reason ->
        [none] The data could not be stored.
       *[other] The data could not be stored: { $reason }.
    }
    .user = The upload failed. Please try it again.
    .about = Data was being handed over in pieces and could not be stored: a piece out of range, a size or checksum that does not fit, no room, or a store that is busy. Nothing of it is kept.
    .check = Look at the reason in the details, and at room and permissions of the blob directory.
    .rec-1 = Upload the file again
    .rec-2 = If it fails again, try a smaller file
    .next-1 = Begin the upload again from the first piece
    .next-2 = Check size and checksum before sending

peer-failed =
    .title = Remote side reported an error
    .model = { $peer_code ->
        [none] The remote side reported an error.
       *[other] The remote side reported error { $peer_code }.
    }
    .user = The other side reported an error. The assistant has been told.
    .about = A server or computer answered with an error that has no kind of its own here. Its number is kept; its text stays with the operator.
    .check = Look the number up in the other side's documentation, and its log by this trace id.
    .rec-1 = Wait: the assistant tries another way
    .rec-2 = { $computer ->
        [none] If it keeps failing, look at the other computer
       *[other] If it keeps failing, look at { $computer }
    }
    .next-1 = Try once more if the call is safe to repeat
    .next-2 = Go on another way

## JRNL: the journal

journal-damaged =
    .title = Journal is damaged
    .model = The journal is damaged, so the session cannot go on.
    .user = The saved conversation is damaged, so it cannot go on. The operator has to look at it.
    .about = What was read from the journal is not what was written: a checksum does not fit, or the file's structure is broken. Records before the damage are still good. Nothing more is written, so that it does not get worse.
    .check = Copy { $path } before anything else. Run the journal check, restore from a backup, and look at the disk's health.
    .rec-1 = Ask the operator to run `budao journal check`, or to restore a backup
    .rec-2 = Start a new session in the meantime

journal-full =
    .title = Journal is full
    .model = The journal is full, so nothing more can be recorded.
    .user = There is no room left for saving, so the session has stopped. The operator has to make room.
    .about = The journal has reached its limit or its disk is full. Since nothing may happen that is not recorded, the session stops. Reserved room was used to write this fault and the end of the turn.
    .check = Free room on the disk of { $path }, shorten retention, or raise the journal's limit. Sessions go on where they stopped.
    .rec-1 = Ask the operator to free room or raise the limit
    .rec-2 = Send the message again afterwards

fenced =
    .title = Another writer took over
    .model = { $holder ->
        [none] Another process has taken over the session { $session }.
       *[other] { $holder } has taken over the session { $session }.
    }
    .user = This session was taken over in another place and goes on there.
    .about = One session has one writer at a time. This process was the writer, did not renew its hold in time, and another one took over. Its late writes are refused, so that the history has only one author.
    .check = A long pause of this process is the usual cause: a sleeping laptop, a stopped container, a very slow disk.
    .rec-1 = Wait: the session goes on in the other process
    .rec-2 = Reload the session if nothing new appears

journal-newer =
    .title = Journal is from a newer version
    .model = The journal was written by a newer version of the program.
    .user = The saved data comes from a newer version of this program. Please update the program.
    .about = The journal has a format that this version does not know yet. It was not opened, because an old version could destroy what it does not understand.
    .check = Update this program, or give it another journal than { $path }.
    .rec-1 = Update the program
    .rec-2 = Use another journal

journal-outdated =
    .title = Journal is from an old version
    .model = The journal was written by an old version of the program that this version cannot read.
    .user = The saved data comes from an old version of this program that this version cannot read. It was left as it is.
    .about = The journal has a format from before the first release, which no later version reads or converts. It was not opened and nothing in it was changed.
    .check = Start with another journal than { $path }, or read it with the version that wrote it.
    .rec-1 = Use another journal
    .rec-2 = Read the old journal with the version that wrote it

journal-unsupported =
    .title = Not available for this journal
    .model = The { $service } journal has no such operation.
    .user = The { $service } journal does not support this. Use the tools of its own storage instead.
    .about = Checks, backups, exports and statistics differ between kinds of journal. This kind leaves the operation to the tools of its storage; nothing was changed.
    .check = See docs/journal.md for what { $service } supports and which tools to use instead.
    .rec-1 = Use the tools of the storage itself
    .rec-2 = Use a journal that supports the operation

journal-read-only =
    .title = Journal is read-only
    .model = The journal cannot be written.
    .user = Nothing can be saved, because the storage is read-only. The operator has to look at it.
    .about = The journal can be read but not written: permissions, a disk that was mounted read-only, or a disk that went read-only after an error. Reading and replay still work.
    .check = Look at the permissions of { $path }, and at whether the system has remounted the disk after an error.
    .rec-1 = Ask the operator to make the storage writable, then send the message again
    .rec-2 = Use another journal

journal-gone =
    .title = Journal is gone
    .model = The journal is no longer there.
    .user = The saved data is no longer where it was. The operator has to look at it.
    .about = The journal's file was deleted, moved or unmounted while it was in use. Writing on would go nowhere, so everything that needs it stops.
    .check = See who moved or deleted { $path }. Put it back before restarting, or a new, empty journal will be made.
    .rec-1 = Ask the operator to put the journal back in its place and restart
    .rec-2 = Restore it from a backup

sync-failed =
    .title = Disk did not confirm a write
    .model = The disk did not confirm a write, so it is not certain what was saved.
    .user = The disk had an error while saving. To be safe, the session has stopped.
    .about = The operating system reported that written data could not be brought to the disk. After that nobody can say what is really there, so nothing more is written until the journal has been opened and checked anew.
    .check = Look at the system's log and the disk's health. Copy { $path }, restart, and run the journal check.
    .rec-1 = Ask the operator to check the disk, then to restart and run `budao journal check`
    .rec-2 = Move the journal to another disk

journal-busy =
    .title = Journal is busy
    .model = The journal is locked by another process at the moment.
    .user = Saving has to wait for another program.
    .about = Another process holds the lock on the journal for longer than usual, for example a backup or a check. The write is repeated.
    .check = See which processes use { $path }. A copy or a check that runs for long should use the journal's own backup command.
    .rec-1 = Try again in a few seconds
    .rec-2 = End the other program if it hangs

no-journal =
    .title = No journal there
    .model = There is no journal at { $path }.
    .user = { $cause ->
        [no_directory] There is no journal at { $path }: its directory does not exist.
        [none] There is no journal at { $path }.
       *[other] There is no journal at { $path }.
    }
    .about = A command that reads a journal, or continues a session in it, was given a path at which there is no journal. Such commands never create one. Commands that start sessions create the file, but never its directory.
    .check = Compare { $path } with the path that the program writes to: the option `--journal`, the variable `BUDAO_JOURNAL`, or the state directory of the user it runs as.
    .rec-1 = Correct the path
    .rec-2 = Start a session with this path to create the journal

not-a-journal =
    .title = Not a journal
    .model = { $path } is not a journal.
    .user = { $cause ->
        [directory] { $path } is a directory, not a journal. Nothing was changed.
        [pipe] { $path } is a pipe, not a journal. Nothing was changed.
        [socket] { $path } is a socket, not a journal. Nothing was changed.
        [device] { $path } is a device, not a journal. Nothing was changed.
        [database] { $path } is a database of another program, not a journal. Nothing was changed.
        [schema] The schema in { $path } belongs to another program. Name another one with `schema=`. Nothing was changed.
        [dangling_link] { $path } is a symbolic link that leads nowhere. Nothing was changed.
        [link_loop] { $path } is a symbolic link that leads back to itself. Nothing was changed.
        [link_of_other_user] { $path } is a symbolic link of another user, so it is not followed. Nothing was changed.
        [parent_not_directory] { $path } lies below a file, so it cannot be a journal. Nothing was changed.
        [side_file] { $path } has the name of a side file of the journal, but it is a file of another program. Nothing was changed.
       *[other] { $path } is a file, but not a journal. Nothing was changed.
    }
    .about = The path given as a journal leads to something else. A journal is a regular file that is empty or begins with the journal's own header. The path is inspected before it is opened; what is not a journal is not opened as one, keeps its mode and content, and gets no side files.
    .check = Correct the path. If { $path } was a journal and its beginning is damaged, `budao journal export --salvage` reads what is left without changing it.
    .rec-1 = Correct the path of the journal
    .rec-2 = If the file was a journal, export what is left with `budao journal export --salvage`

journal-of-other-user =
    .title = Journal of another user
    .model = { $path } belongs to another user.
    .user = { $path } belongs to another user ({ $holder }). Run the command as that user, or use another journal.
    .about = A journal is written only by the user who owns its file. Otherwise the side files would belong to someone else, and the owner could no longer use them. Reading is possible where the permissions of the file allow it.
    .check = Run the program as the owner of { $path }, or change the owner of the file and of the files beside it.
    .rec-1 = Run the command as the owner of the journal
    .rec-2 = Use another journal

journal-unreachable =
    .title = Database of the journal cannot be reached
    .model = The database of the journal cannot be reached.
    .user = The database server of { $path } cannot be reached. Check the host and port, and whether the server runs.
    .about = No connection to the database server came about: the address or port is wrong, the server does not run, or a firewall is in between. Nothing was created or changed.
    .check = Try `pg_isready` with the same host and port. Correct the address in `--journal`, start the server, or open the way to it.
    .rec-1 = Correct the host and port of the journal
    .rec-2 = Start the database server

journal-login-refused =
    .title = Database refuses the login
    .model = The database of the journal refuses the login.
    .user = The database of { $path } refuses the login of { $holder }: the role or its password is wrong.
    .about = The server answered, but does not accept this role with this password. A password comes from the address, the variable `PGPASSWORD`, or a password file (`PGPASSFILE`, `~/.pgpass`, `passfile=`). It is never written to a log or a fault. Nothing was created or changed.
    .check = Try `psql` with the same address. Look at the role's password and at the server's `pg_hba.conf`.
    .rec-1 = Correct the password in `PGPASSWORD` or the password file
    .rec-2 = Correct the role in the address, or create it with `CREATE ROLE`

journal-no-database =
    .title = Database does not exist
    .model = The database of the journal does not exist.
    .user = The database named in { $path } does not exist on this server. Create it with `createdb`, or correct the name.
    .about = The server accepts the login, but has no database of this name. The program creates its tables, never the database itself. Nothing was created or changed.
    .check = List the databases with `psql -l`. Correct the name in the address, or create the database and grant the role `CREATE` on it.
    .rec-1 = Correct the name of the database
    .rec-2 = Create the database, then start again

journal-no-rights =
    .title = Role lacks a right in the database
    .model = The database role of the journal lacks a right.
    .user = The role { $holder } lacks a right in the database of { $path }. Grant it, or use the role that owns the journal.
    .about = The role may log in, but not do what the journal needs. To create a journal it needs `CREATE` on the database; to use one it should own the schema. Nothing was created or changed.
    .check = As an administrator run `GRANT CREATE ON DATABASE … TO …`, or `ALTER SCHEMA … OWNER TO …` with all its tables.
    .rec-1 = Grant the role the missing right
    .rec-2 = Use the role that owns the journal's schema

journal-setting-unsafe =
    .title = Database setting breaks a promise
    .model = A setting of the database makes the journal unsafe.
    .user = The database of { $path } has { $config_key } = { $received }, but the journal needs { $expected }.
    .about = The journal promises that what was confirmed survives a crash. With this setting the database does not keep that promise, so the journal is not opened. Nothing was created or changed.
    .check = Run `ALTER SYSTEM SET { $config_key } = …` as an administrator and reload or restart the server; look at `ALTER ROLE` and `ALTER DATABASE` too, which override it. A server that is too old needs an upgrade.
    .rec-1 = Change the setting { $config_key }, then start again
    .rec-2 = Use another database server

journal-not-trusted =
    .title = Database certificate is not trusted
    .model = The certificate of the journal's database is not trusted.
    .user = The certificate of the database server of { $path } is not trusted. Name its authority with `sslrootcert=FILE` in the address.
    .about = Off this machine the connection is encrypted and the server's certificate must fit its host name and a known authority. Otherwise the password and all records could go to another machine. Nothing was sent.
    .check = Name the authority's certificate with `sslrootcert=FILE` in the address, and use the host name that is in the server's certificate. `sslmode=disable` gives up encryption and belongs in protected networks only.
    .rec-1 = Add `sslrootcert=FILE` to the address of the journal
    .rec-2 = Give the server a certificate for its host name

journal-connections-full =
    .title = Database has no free connection
    .model = The database of the journal has no free connection.
    .user = The database server of { $path } has no free connection for this process.
    .about = Each process uses up to eleven connections. The server, the database or the role has reached its limit. Processes that are connected already go on.
    .check = Compare `max_connections` and the limits of the database and the role with eleven connections for each process; look at `pg_stat_activity` for connections of others.
    .rec-1 = Raise `max_connections`, or the connection limit of the role
    .rec-2 = End connections that nobody needs

## CONF: configuration

configuration-wrong =
    .title = Configuration is wrong
    .model = The setting { $config_key } is wrong.
    .user = { $expected ->
        [none] { $nearest ->
            [none] The setting { $config_key } is wrong.
           *[other] The setting { $config_key } is wrong. Did you mean { $nearest }?
        }
       *[other] { $nearest ->
            [none] The setting { $config_key } is wrong: it must be { $expected }.
           *[other] The setting { $config_key } is wrong: it must be { $expected }. Did you mean { $nearest }?
        }
    }
    .about = A setting has a value that is not allowed, or a name that is not known. Unknown names are refused and not ignored, because a misspelt limit would be no limit.
    .check = Correct the named setting; file and line are given where they are known.
    .rec-1 = Correct the setting and start again
    .rec-2 = Look up its allowed values in the documentation

credential-missing =
    .title = Credential not set
    .model = A needed credential is not set: { $required_config }.
    .user = A needed key is not set: { $required_config }. Please set it and start again.
    .about = A service is configured, but the key or token it needs is not there. It is found at the start and not at the first request.
    .check = Set { $required_config } in the environment or the configuration of the process.
    .rec-1 = Set { $required_config } and start again
    .rec-2 = Choose a service that needs no key, such as the demo model

address-in-use =
    .title = Address already in use
    .model = The address { $endpoint } is already in use.
    .user = The address { $endpoint } is already used by another program. Choose another port, or stop that program.
    .about = The server should listen at an address where another program is listening already, often an older copy of the server itself.
    .check = Find the program that listens there, or choose another port.
    .rec-1 = Choose another port
    .rec-2 = Stop the other program

## BUG: our own mistakes

bug =
    .title = A mistake in our own code
    .model = Something went wrong inside the program itself. It is not your mistake.
    .user = Something went wrong inside the program. It has been recorded; the session goes on where it can.
    .about = The program met a state that its authors believed impossible. It was caught, recorded with everything needed to find it, and kept from spreading. Repeating the same thing may work or may fail in the same way.
    .check = Report it with the trace id and the log lines around it. Please say what was being done.
    .rec-1 = Send the message again
    .rec-2 = If it fails again, report it to the operator with the trace id
    .next-1 = Make the call once more
    .next-2 = Go another way if it fails again, and tell the user

## What we were doing
##
## Phrases that fit behind "Could not …".

op-generate-plan = make a plan
op-solve-task = work on a task
op-aggregate = put the results together
op-run-turn = run the turn
op-model-request = ask the model
op-count-tokens = count the tokens
op-compact-history = shorten the conversation
op-tool-call = call the tool
op-reconcile-call = find out whether the call was done
op-settle-doubt = settle the outcome of the call
op-set-timer = set or cancel the timer
op-start-tool = start the tool
op-register-tool = add the tool
op-ask-permission = ask for permission
op-answer-question = apply the answer
op-run-hook = run the hook
op-notify-listener = tell the listener
op-start-agent = start the sub-agent
op-resume-session = resume the session
op-clean-up = clean up
op-run-command = run the command
op-read-shell = read the shell's output
op-kill-shell = end the shell
op-read-file = read the file
op-write-file = write the file
op-edit-file = change the file
op-list-files = list the files
op-search-files = search the files
op-update-todos = change the to-do list
op-open-journal = open the journal
op-append-records = write to the journal
op-read-records = read the journal
op-follow-records = follow the journal
op-check-journal = check the journal
op-back-up-journal = back up the journal
op-import-session = import the session
op-apply-retention = remove old sessions
op-take-lease = become the session's writer
op-open-session = open the session
op-submit-command = hand in the command
op-cancel-turn = cancel the turn
op-accept-frame = read the message
op-send-frame = send the message
op-replay-events = send the missed events
op-verify-state = verify the saved state
op-authenticate = check who is asking
op-serve-request = answer the request
op-start-server = start the server
op-deliver-alert = deliver the alert
op-export-traces = export traces and metrics
op-load-config = load the configuration
op-start-cli = start the agent program
op-read-cli = read from the agent program
op-write-cli = write to the agent program
op-talk-to-editor = talk to the editor
op-connect = connect
op-start-mcp-server = start the MCP server
op-discover-tools = find the tools
op-join-room = join the room
op-leave-room = leave the room
op-relay-call = pass on the call
op-read-document = read the document
op-read-skill = read the skill
op-read-blob = read the stored data
op-write-blob = store the data

## Areas of the catalog

area-val = Input that does not fit
area-timeout = No answer in time
area-rate = Too many requests
area-auth = Keys and sign-ins
area-perm = Permissions and questions
area-tool = Calling tools
area-file = Files
area-proc = Commands and shells
area-net = The network
area-retry = Trying again
area-res = Memory, disk, quotas, limits
area-model = Model services
area-turn = The turn and its budgets
area-hook = Hooks and listeners
area-conn = Connections and replay
area-state = Signed state
area-sess = Sessions and commands
area-cli = External agent programs
area-smcp = Rooms, computers, documents, skills, blobs
area-jrnl = The journal
area-conf = Configuration
area-bug = Our own mistakes

## Words of the columns

word-error-type-validation = the arguments do not fit
word-error-type-runtime = something the call depends on failed
word-error-type-logical = the tool ran and its answer is no
word-error-type-aborted = it was stopped
word-error-type-exception = not foreseen

word-category-validation = input that does not fit
word-category-transient = passes by itself
word-category-resource = something is used up
word-category-permanent = stays until something is changed
word-category-connection = a line was lost

word-remedy-runtime = the runtime
word-remedy-model = the model: it changes the call
word-remedy-user = the user: decide, correct or sign in
word-remedy-operator = the operator: look at the machine or the code

word-next-retry-same = the same call may work
word-next-retry-changed = a changed call may work
word-next-stop = do not repeat the call

word-severity-info = part of normal work
word-severity-warn = worth a look if it repeats
word-severity-error = something did not work
word-severity-critical = work stops until it is fixed

word-strategy-retry = try again
word-strategy-fallback = take another way
word-strategy-escalate = hand it to the person responsible
word-strategy-terminate = end the run
word-strategy-escalate-to-user = ask the user
word-strategy-exponential-backoff = wait longer each time, as the service asks
word-strategy-reconnect-with-state = connect again and resume from the last event
word-strategy-retry-with-exponential-backoff = try again, later each time
word-strategy-create-new-session = start a new session

word-editor-tool-call-failed = the tool call is shown as failed
word-editor-turn-goes-on = the turn goes on
word-editor-cancelled = the turn ends as cancelled
word-editor-refusal = the turn ends as refused
word-editor-max-tokens = the turn ends at the token limit
word-editor-max-turn-requests = the turn ends at the step limit
word-editor-error = the turn ends with an error

## Labels of a page

label-code = Code
label-name = Name
label-error-type = Class, for the model
label-category = Class, for people
label-remedy = Next move
label-next = The model's call
label-retry = Trying again
label-retryable = Same call worth repeating
label-recoverable = Can be fixed
label-auto-retry = Repeated by itself
label-severity = Severity
label-strategy = Way out
label-event = Event
label-editor = In an editor
label-facts = Facts
label-about = What it means
label-model = What the model is told
label-user = What the user sees
label-operator = What the operator checks
label-recommendations = What the user can do
label-model-advice = What the model is advised to do
label-numbers = Numbers for other programs
label-yes = yes
label-no = no

## Trying again

retry-scheduled = { $seconds ->
    [0] Trying again now (attempt { $attempt } of { $max_attempts } failed)
    [one] Trying again in { $seconds } second (attempt { $attempt } of { $max_attempts } failed)
   *[other] Trying again in { $seconds } seconds (attempt { $attempt } of { $max_attempts } failed)
}
model-changed = { $reason ->
    [returned] { $to } can be asked again, and answers from now on instead of { $from }.
    [gate_shut] { $from } is busy or down. { $to } is asked instead.
    [tries_used] All tries with { $from } failed. { $to } is asked instead.
    [patience_exceeded] { $from } asks for a longer wait than this run may take. { $to } is asked instead.
    [context_too_long] The conversation is too long for { $from }. { $to } is asked instead.
    [unknown_model] Its service does not know the model { $from }. { $to } is asked instead.
    [quota_spent] The quota for { $from } is spent. { $to } is asked instead.
    [content_filtered] The content filter of { $from } refused the request. { $to } is asked instead.
   *[other] { $from } cannot answer. { $to } is asked instead.
}
recovered = It worked on attempt { $attempt }
gave-up = { $attempt ->
    [one] Not recovered after { $attempt } attempt
   *[other] Not recovered after { $attempt } attempts
}

## Why a call is asked about or denied
##
## Recorded in English, in these very words, and told to readers in theirs: `reason-…`.

reason-ask-list = the tool is on the ask list
reason-deny-list = the tool is on the deny list
reason-confirm = the tool asks for confirmation of every call
reason-approval = the tool writes or executes, and the mode is `approval`
reason-readonly = the tool writes or executes, and the mode is `readonly`
reason-plan = the plan must be confirmed before it is carried out
reason-spending-cap = the spending cap is reached
reason-program = the program asks before it does this
reason-mode-plan = the mode is `plan`: nothing is changed or run
reason-mode-dont-ask = the mode is `dontAsk`: nobody is asked
reason-room-role = the role is fixed by the first join
reason-room-name-fixed = the name is fixed while in the room
reason-room-second = the agent is already in a room and must leave it first
reason-room-name-taken = a computer of this name already exists in the room
reason-room-agent-only = only an agent may ask this
reason-room-own-name = `computer` is not the name the caller joined with
reason-token-role = the token is for another role
reason-token-rooms = the token is for other rooms
reason-token-missing = auth.token is missing
reason-token-wrong = auth.token is not valid
reason-tool-changed = the worker changed the tool since it last ran in this session
reason-tool-changed-by-server = the MCP server changed the tool since it was approved
reason-call-claimed = another worker has claimed it
reason-call-cancelled = it is cancelled
reason-call-not-claimed = this worker has not claimed it
reason-call-has-result = it has its result
reason-call-over = it is over
reason-call-other-attempt = it is another attempt
reason-call-not-offered = it was not offered to this worker

## What settings expect

expected-loopback = a loopback address, or authentication
expected-readable-file = a file that can be read
expected-creatable-file = a file that can be created
expected-new-file = a new file, or --force
expected-no-home = a file, since there is no home directory
expected-known-key = a key of the configuration file
expected-reference = a reference to a secret, not the secret itself
expected-set-or-readable = a variable that is set, or a file that can be read
expected-whole-number = a whole number
expected-number = a number
expected-fraction = a number between 0 and 1
expected-boolean = true or false
expected-text = a text in quotes
expected-list = a list
expected-text-or-list = a text or a list of texts
expected-table = a table
expected-toml = TOML that can be read
expected-at-least-1 = at least 1
expected-more-than-0 = more than 0 ms
expected-characters-32 = at least 32 characters
expected-characters-8 = at least 8 characters
expected-bytes-32 = keys of at least 32 bytes
expected-port = a port number
expected-http-address = an http or https address
expected-http-host = an http or https URL with a host
expected-serve-address = the address of a `budao serve`
expected-printed-address = an http or https address, as `budao serve` prints it
expected-machine-address = an address of this machine
expected-public-key = an Ed25519 or RSA public key in PEM form
expected-unused-name = a name no other server has
expected-tool-name = the name of a tool or a `prefix*`
expected-command = a command
expected-hub-token = a token for agents and computers
expected-explained-code = a code that `budao explain --list` shows
expected-one-model = one model, because the Claude CLI takes no list
expected-plain-url = a URL without user, password or query; keys have their own setting
expected-model-list = a list with a model before and after each comma
expected-one-of = one of

## Advice
##
## Lines written for one fault from its facts: `advice-…`. They are for the model unless the code hands them to
## people, and stand before the kind's own `.next` or `.rec`. Arguments are facts.

### Calling tools

advice-may-still-run = The call may still be running, or may be done.
advice-may-still-run-user = It may still be running there, or may be done.
advice-nothing-done = Nothing of it was done.
advice-was-done = The work itself was done; only its answer was lost.
advice-was-done-model = Do not make this call again: its work is done. Look the result up in another way if you need it
advice-was-done-user = Have nothing repeated; look where the work was done if you need its result
advice-reconciled = The program was interrupted during this call. The tool has found out that the call was done; this is its result.
advice-done-once = This work was done before, by call { $call_id } of session { $session }, and was not done again. The outcome is that of the first call.
advice-doubt-happened = A person settled the unknown outcome of { $tool_name } (call { $call_id }): it happened. Its result:
advice-doubt-did-not-happen = A person settled the unknown outcome of { $tool_name } (call { $call_id }): it did not happen. Make the call again if its work is still needed.
advice-doubt-left = A person looked at the unknown outcome of { $tool_name } (call { $call_id }) and leaves it to you to find out.
advice-doubt-arguments = Its arguments: { $excerpt }
advice-doubt-note = The person wrote: { $note }
advice-settle-doubts = Say what became of some of the calls in doubt: `budao doubts` lists them, `budao doubts settle` settles one
advice-timer-fired = The timer "{ $timer }" fired. It was due at { $due_at }.
advice-timer-missed = { $times } later times passed before it could fire; they are not made up for.
advice-attempt-follows = Wait: the next attempt follows by itself
advice-malformed-at = The place is marked with <HERE>: { $excerpt }
advice-duplicate-key = Write the key { $field } once; it came twice in the same object
advice-ends-early = The arguments stop before they are complete: send them again in full, or split the work into smaller calls
advice-malformed-allowed = Allowed there: { $expected }
advice-malformed-backslash = Write every backslash in a string twice, as \\; a single one has more than one meaning
advice-malformed-number = Write numbers in decimal digits, without leading zeros, units or separators
advice-malformed-word = That is no JSON value: put text between double quotes, and write the value itself and not a name for it; NaN, Infinity and undefined do not exist in JSON
advice-malformed-ellipsis = Write every entry; nothing can stand for entries that are left out
advice-malformed-comment = Leave out comments; text that begins with # or // goes between double quotes
advice-malformed-quote = A text or a value ends here and something follows it: write a quote inside a text as \", and a comma between two entries
advice-malformed-separator = Write one comma between two entries and one colon between a key and its value
advice-malformed-outside = Send one JSON object and nothing before or behind it
advice-malformed-duplicate = Write each key once in an object
advice-malformed-depth = Nest lists and objects less deeply
advice-output-deep = The output is nested in more than { $limit } levels (limit json_depth); what is deeper is shown as text.
advice-output-cut = The output has { $total_size } bytes and was too large to keep; only its beginning and its end are shown. Ask for less at once to see the rest.
advice-output-cut-kept = The output has { $total_size } bytes; only its beginning and its end are shown. The whole is kept as { $blob }.
advice-arguments-repaired = The arguments were read as what they clearly meant: { $mismatches }. Send them in the right form next time.
advice-reference-missing = `{ $received }` is not set or cannot be read.
advice-write-reference = Write { $field } = "{ $expected }".
advice-tool-nearest = Did you mean { $nearest }?
advice-unknown-key = Leave out keys the tool does not know, or use the name it knows
advice-missing-key = Add { $field }; the tool cannot run without it
advice-allowed-values = For { $field } use one of the allowed values, written exactly as listed
advice-follow-example = Follow the form of the example, with your own values
advice-escape-content = In file content, write quotes as \", backslashes as \\ and line breaks as \n
advice-nearest-path = The closest existing path is { $nearest_path }
advice-look-with-glob = Find the right path with fs_glob before you read or edit it
advice-read-again = Read { $path } again and base the change on what it says now
advice-edit-closest-line = The closest text is at line { $line }: read there and copy the text to replace exactly
advice-edit-read-first = Read the file first and copy the text to replace exactly, spaces and line breaks included
advice-edit-more-context = Put more of the surrounding lines into the text to replace, or set replace_all
advice-relative-path = Use a path relative to the workspace, without going up out of it
advice-list-directory = Look at what is there with fs_glob
advice-binary-file = Do not read it as text; use a command that understands its format
advice-command-not-found = The command is not installed or not in the search path: check its name, or use another one
advice-command-not-executable = The file is there but may not be executed: run it through its interpreter, or make it executable
advice-command-killed = It was killed, often for using too much memory: do less at once
advice-command-permission = The command may not do this here; do not try again with more rights unless the user says so
advice-command-path = A path in the command does not exist: check it with fs_glob, and mind the working directory
advice-command-syntax = The shell could not read the command: check quotes and brackets
advice-command-network = The network is not reachable from here; go on without it, or ask the user
advice-read-stderr = Read the error output above; it says what went wrong
advice-command-background = Run a long command with background set and look at it with bash_logs, or give it a larger timeout_ms
advice-todo-rules = Ids must be unique, and at most one entry may be in_progress
advice-mcp-said-no = Read what the server said in data and change the call accordingly
advice-mcp-server = The server that has this tool is in trouble; go on with other tools
advice-too-many-abandoned = Too many earlier calls are stuck; wait, or go on without tools

### Files and commands

advice-edit-closest-lines = Line { $line } is close to it and reads: { $excerpt }
advice-edit-only-spaces-differ = Line { $line } differs from it only in spaces or tabs and reads: { $excerpt }
advice-edit-match-lines = It occurs at lines { $excerpt }
advice-shells-running = End one of the running commands with bash_kill first: { $allowed }
advice-shell-started = Running in the background: { $command }. Use bash_logs to read its output and bash_kill to end it.
advice-shell-ended = The command was ended.
advice-shell-had-ended = The command had already ended.

## In place of a fact that a fault of its kind always has, if a record or a foreign program left it out

absent-constraint = a rule
absent-mismatches = the arguments do not fit
absent-tool-name = the tool
absent-limit = the limit
absent-event-name = the event
absent-call-id = the call
absent-timeout-ms = the set number of
absent-service = the service
absent-mcp-server = the MCP server
absent-hook = the hook
absent-question-id = the question
absent-computer = the computer
absent-worker = a worker
absent-reason = an unknown reason
absent-path = the file
absent-matches = several
absent-exit-code = an error
absent-signal = a signal
absent-command = the command
absent-shell-id = the shell
absent-host = the host
absent-wait-ms = some
absent-limit-name = a limit
absent-cap = the cap
absent-spent = an unknown amount
absent-estimate = an unknown amount
absent-model = the model
absent-times = several
absent-due-at = the due time
absent-now = the time of the server
absent-timer = the timer
absent-task-id = the task
absent-listener = the listener
absent-from-seq = an earlier record
absent-to-seq = a later record
absent-session = the session
absent-command-id = the command
absent-engine = another engine
absent-program = the program
absent-room = the room
absent-doc-ref = the document
absent-page = the page
absent-element-id = the element
absent-uri = the resource
absent-capability = this capability
absent-skill = the skill
absent-cause = an error
absent-state = cut
absent-status = of an error
absent-holder = another process
absent-config-key = a setting
absent-required-config = a setting
absent-endpoint = the address
absent-expected = another value
absent-received = the present value
