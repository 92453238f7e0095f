// A conversation is the fold of its frames: the same frames give the same entries, live and on replay. Pure; no page
// in here. `changed` names the entries that must be drawn anew.

const ENDS = { "agent.final_answer": "done", "agent.interrupted": "stopped", "agent.error": "failed" };

export class Conversation {
  entries = [];
  changed = new Set();
  /** While the reader is away: entries that changed, each with the position of the frame that changed it first. */
  moved = undefined;
  plan = undefined;
  planChanged = false;
  /** What is being done right now, if something is: `thinking`, `stopping`. */
  busy = undefined;
  facts = { events: 0, faults: 0, recovered: 0, doubts: 0, tokens: 0, cost: undefined, currency: undefined, head: 0, state: "idle", model: undefined, title: undefined, remembered: [], forkedFrom: undefined, chosen: undefined };

  #calls = new Map();
  /** What the model wanted to call with, by call: calls that never run tell it nowhere else. */
  #wanted = new Map();
  #questions = new Map();
  /** Calls in doubt, which outlive their turn. */
  #doubts = new Map();
  #steps = new Map();
  #open = new Map();
  /** Messages that wait for their turn, and calls of this turn that failed and were not corrected yet. */
  #waiting = [];
  #fallen = [];
  /** The end of the last turn, while that can be retried; and whether the turn under way is a plan, which cannot. */
  #retryable = undefined;
  #isPlan = false;
  /** The wait for a busy service that has not ended. */
  #wait = undefined;

  take(frame) {
    const meta = frame.metadata ?? {};
    if (frame.seq !== undefined) {
      this.facts.events += 1;
      this.facts.head = frame.seq;
    }
    if (meta.fault_counts !== undefined) {
      const { faults, recovered } = meta.fault_counts;
      Object.assign(this.facts, { faults, recovered });
    }
    const [family] = frame.event.split(".");
    if (family === "error") this.#error(frame, meta);
    else if (["plan", "solver", "aggregate", "pipeline"].includes(family)) this.#pipeline(frame, meta);
    else if (ENDS[frame.event] !== undefined) this.#end(frame, meta, ENDS[frame.event]);
    else this.#other(frame, meta);
  }

  #push(entry) {
    this.entries.push(entry);
    this.#touch(entry);
    return entry;
  }

  #touch(entry) {
    if (entry === undefined) return;
    this.changed.add(entry);
    if (this.moved !== undefined && !this.moved.has(entry)) this.moved.set(entry, this.facts.head);
  }

  #other(frame, meta) {
    switch (frame.event) {
      case "agent.session_created":
        Object.assign(this.facts, { model: meta.model, title: meta.session_name, language: meta.language, forkedFrom: meta.forked_from, chosen: meta.model });
        this.facts.remembered = meta.remembered_tools ?? [];
        break;
      case "user.message":
        this.#message(String(frame.content), meta, meta.mode === "plan", frame);
        break;
      case "user.solve_tasks":
        this.#message(frame.content.question, meta, true, frame);
        break;
      case "agent.thinking":
        this.#thinking(frame, meta);
        break;
      case "agent.partial_answer":
        this.#partial(frame, meta);
        break;
      case "agent.llm_message":
        this.#waited(frame);
        this.#words(meta.step, frame.content?.messages?.[0]?.content ?? "");
        for (const call of frame.content?.messages?.[0]?.tool_calls ?? []) this.#wanted.set(call.id, call.arguments);
        break;
      case "agent.tool_call":
        this.#call(frame, meta);
        break;
      case "agent.tool_output":
        this.#output(frame, meta);
        break;
      case "agent.tool_result":
        this.#result(frame, meta);
        break;
      case "agent.user_confirm":
        this.#question(frame, meta);
        break;
      case "agent.timeout":
        this.#answered(meta.question_id, "expired");
        break;
      case "agent.session_end":
        this.facts.state = meta.reason === "error" ? "failed" : "closed";
        this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
        break;
      case "system.snapshot":
        this.#push({ is: "notice", text: frame.show_content, at: frame.timestamp });
        break;
      case "system.notice":
        this.#notice(frame, meta);
        break;
    }
  }

  #message(text, meta, plan, frame) {
    const entry = this.#push({ is: "user", text, queued: meta.queued, plan, images: meta.images, seq: frame.seq, at: frame.timestamp });
    if (meta.queued) this.#waiting.push(entry);
    else this.#begin();
  }

  /** A turn begins to answer the oldest message that waits. */
  #begin() {
    this.facts.state = "running";
    this.busy = "thinking";
    this.#steps.clear();
    this.#open.clear();
    this.#fallen = [];
    this.#isPlan = false;
    if (this.#retryable !== undefined) {
      this.#retryable.canRetry = false;
      this.#touch(this.#retryable);
      this.#retryable = undefined;
    }
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) {
      waiting.queued = false;
      this.#touch(waiting);
    }
  }

  #thinking(frame, meta) {
    if (!meta.streaming) {
      if (this.facts.state !== "running" && this.facts.state !== "waiting_for_decision") this.#begin();
      this.facts.state = "running";
      this.facts.model = meta.model ?? this.facts.model;
      this.busy = "thinking";
      return;
    }
    const step = this.#step(meta.step);
    this.#waited(frame);
    step.thought ??= this.#push({ is: "thought", text: "" });
    step.thought.text += frame.content;
    this.#touch(step.thought);
  }

  #step(number) {
    if (!this.#steps.has(number)) this.#steps.set(number, {});
    return this.#steps.get(number);
  }

  #partial(frame, meta) {
    const step = this.#step(meta.step);
    if (meta.abandoned) {
      // What was heard of the attempt is folded away; the next one starts over.
      for (const entry of [step.answer, step.thought]) {
        if (entry === undefined) continue;
        entry.isAbandoned = true;
        this.#touch(entry);
      }
      step.answer = step.thought = undefined;
      return;
    }
    this.#waited(frame);
    step.answer ??= this.#push({ is: "answer", text: "", isOpen: true, at: frame.timestamp });
    step.answer.text += frame.content;
    this.busy = undefined;
    this.#touch(step.answer);
  }

  /** The words of a step in whole, instead of what was heard of them. */
  #words(number, text) {
    const step = this.#step(number);
    if (step.answer === undefined && text.trim() === "") return;
    step.answer ??= this.#push({ is: "answer", text: "" });
    if (step.answer.text !== text || step.answer.isOpen) {
      Object.assign(step.answer, { text, isOpen: false });
      this.#touch(step.answer);
    }
  }

  /** A request waits for its service. Later reports bring its place in the queue up to date. */
  #held(frame, meta) {
    const facts = { reason: meta.hold_reason, due: meta.due_at, before: meta.waiting_before };
    if (this.#wait === undefined) this.#wait = this.#push({ is: "wait", state: "waiting", at: frame.timestamp, ...facts });
    else Object.assign(this.#wait, facts);
    this.busy = undefined;
    this.#touch(this.#wait);
  }

  /** The wait is over: the service answers, or the turn has ended. */
  #waited(frame) {
    if (this.#wait === undefined) return;
    Object.assign(this.#wait, { state: "over", ended: frame.timestamp });
    this.#touch(this.#wait);
    this.#wait = undefined;
  }

  #call(frame, meta) {
    const known = this.#calls.get(frame.step_id);
    const fields = { tool: meta.tool_name, args: meta.args, attempt: meta.attempt, repairs: meta.repairs, status: "running" };
    if (known !== undefined) {
      Object.assign(known, fields);
      this.#touch(known);
    } else {
      this.#calls.set(frame.step_id, this.#push({ is: "call", id: frame.step_id, output: "", at: frame.timestamp, ...fields }));
    }
    this.busy = undefined;
  }

  #output(frame) {
    const call = this.#calls.get(frame.step_id);
    if (call === undefined) return;
    call.output += frame.content;
    this.#touch(call);
  }

  #result(frame, meta) {
    let call = this.#calls.get(frame.step_id);
    if (call === undefined) {
      const args = this.#wanted.get(frame.step_id);
      call = this.#push({ is: "call", id: frame.step_id, tool: meta.tool_name, args, output: "", at: frame.timestamp, neverRan: true });
      this.#calls.set(frame.step_id, call);
    }
    Object.assign(call, { status: meta.status, took: meta.execution_time_ms, content: frame.content, total: meta.total_bytes });
    if (meta.status === "failed") {
      call.fault = faultOf(frame, meta);
      if (meta.in_doubt) {
        call.doubt = "open";
        this.#doubts.set(call.id, call);
        this.facts.doubts = this.#doubts.size;
      }
      this.#fallen.push(call);
    } else {
      this.#mended(call);
    }
    this.#touch(call);
  }

  /** A call worked: what the model got wrong about this tool before, it has corrected. */
  #mended(call) {
    this.#fallen = this.#fallen.filter((entry) => {
      if (entry.tool !== call.tool) return true;
      entry.mended = true;
      this.#touch(entry);
      return false;
    });
  }

  /** A person said what became of a call. The first word counts, whichever window it came from. */
  #settled(frame, meta) {
    const call = this.#doubts.get(meta.call_id);
    if (call !== undefined) {
      Object.assign(call, { doubt: meta.outcome, settledAt: frame.timestamp });
      this.#doubts.delete(meta.call_id);
      this.facts.doubts = this.#doubts.size;
      this.#touch(call);
    }
    this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
  }

  #question(frame, meta) {
    if (this.#questions.has(frame.step_id)) return;
    const { tool_name: tool, tool_args: args, tasks, plan_summary: summary, digest, reason, expires_at: expires } = meta;
    const { server, message, url, host, fields, remember } = meta;
    const entry = { is: "question", id: frame.step_id, scope: meta.scope, tool, args, server, message, url, host, fields, tasks, summary, digest, reason, remember, expires, state: "open" };
    this.#questions.set(frame.step_id, this.#push(entry));
    this.facts.state = "waiting_for_decision";
    this.busy = undefined;
  }

  #answered(id, state) {
    const question = this.#questions.get(id);
    if (question === undefined) return;
    question.state = state;
    if (this.facts.state === "waiting_for_decision") this.facts.state = "running";
    this.#touch(question);
  }

  #notice(frame, meta) {
    switch (meta.action) {
      case "confirmation_answered":
        this.#answered(meta.question_id, meta.confirmed ? "allowed" : "denied");
        break;
      case "settings_changed":
        this.facts.remembered = meta.remembered_tools ?? [];
        this.facts.chosen = meta.model ?? this.facts.chosen;
        break;
      case "child_opened":
        this.#child(meta);
        break;
      case "doubt_settled":
        this.#settled(frame, meta);
        break;
      case "cancelling":
        this.busy = "stopping";
        break;
      case "request_held":
        this.#held(frame, meta);
        break;
      case "timer_set":
      case "timer_cancelled":
      case "message_withdrawn":
      case "model_changed":
        this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
        break;
      case "turn_retried":
        this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
        this.#begin();
        break;
      case "session_resumed":
      case "history_compacted":
      case "replanning":
        this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
        break;
    }
  }

  #error(frame, meta) {
    if (frame.seq === undefined) return;
    const key = `${meta.call_id ?? ""}|${meta.step ?? ""}|${meta.task_id ?? ""}`;
    const open = this.#open.get(key);
    switch (frame.event) {
      case "error.retry_attempt":
        if (open !== undefined) Object.assign(open, { state: "waiting", due: meta.due_at, next: meta.next_attempt, max: meta.max_attempts });
        break;
      case "error.recovery_success":
        this.#waited(frame);
        if (open !== undefined) Object.assign(open, { state: "recovered", attempts: meta.attempts, took: meta.recovery_time_ms });
        this.#open.delete(key);
        break;
      case "error.recovery_started":
        this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
        break;
      case "error.connection_lost":
        if (meta.operation === "send_frame") {
          this.#push({ is: "notice", text: frame.show_content ?? frame.content, at: frame.timestamp });
          break;
        }
      // falls through
      default:
        this.#fell(frame, meta, key, open);
        if (meta.hold_reason !== undefined) this.#held(frame, meta);
    }
    this.#touch(this.#open.get(key) ?? open);
  }

  #fell(frame, meta, key, open) {
    const givenUp = frame.event === "error.recovery_failed";
    const fault = faultOf(frame, meta);
    const state = givenUp ? "given_up" : "open";
    if (open !== undefined) {
      open.tries.push(fault);
      Object.assign(open, { fault, state });
    } else {
      this.#open.set(key, this.#push({ is: "fault", fault, tries: [fault], state, at: frame.timestamp }));
    }
    this.busy = undefined;
  }

  #end(frame, meta, how) {
    this.#waited(frame);
    for (const { answer } of this.#steps.values()) {
      if (answer?.isOpen) {
        answer.isOpen = false;
        this.#touch(answer);
      }
    }
    if (how === "done" && typeof frame.content === "string") this.#words(meta.steps, frame.content);
    if (how === "failed" && ![...this.#open.values()].some((entry) => entry.fault.code === meta.error_code)) {
      this.#push({ is: "fault", fault: faultOf(frame, meta), tries: [], state: "given_up", at: frame.timestamp });
    }
    for (const entry of this.#open.values()) {
      if (entry.state !== "recovered") entry.state = "given_up";
      this.#touch(entry);
    }
    for (const call of this.#calls.values()) {
      if (call.status !== "running") continue;
      call.status = "cancelled";
      this.#touch(call);
    }
    this.#calls.clear();
    this.#wanted.clear();
    this.facts.tokens += meta.total_tokens ?? 0;
    if (meta.currency !== undefined) [this.facts.cost, this.facts.currency] = [meta.session_cost, meta.currency];
    const canRetry = how === "failed" && !this.#isPlan;
    const end = this.#push({ is: "end", how, turn: meta.turn, canRetry, took: meta.generation_time_ms, tokens: meta.total_tokens, isEstimate: meta.estimated_tokens > 0, cost: meta.cost, currency: meta.currency, at: frame.timestamp });
    if (canRetry) this.#retryable = end;
    this.facts.state = how === "failed" ? "failed" : "idle";
    this.busy = undefined;
    if (this.#waiting.length > 0) this.#begin();
  }

  #pipeline(frame, meta) {
    this.planChanged = true;
    this.#isPlan = true;
    const [family, what] = frame.event.split(".");
    if (what === "start" && family === "plan") {
      this.plan = { question: frame.content.question, summary: "", stage: "planning", tasks: new Map(), result: undefined, workers: {} };
    }
    this.plan ??= { question: "", summary: "", stage: "solving", tasks: new Map(), result: undefined, workers: {} };
    const plan = this.plan;
    if (family === "plan" && what === "completed") {
      plan.stage = "solving";
      plan.summary = frame.content.plan_summary;
      plan.tasks = new Map(frame.content.tasks.map((task) => [String(task.id), { title: task.title, status: "open", attempt: 0 }]));
    } else if (family === "plan" && what !== "start") {
      plan.stage = what === "validation_error" ? "planning" : "ended";
      plan.failed = what !== "validation_error";
    } else if (family === "solver") {
      this.#task(plan, frame, meta, what);
    } else if (family === "aggregate") {
      plan.stage = what === "start" ? "aggregation" : "ended";
      plan.result = frame.content?.output ?? plan.result;
      plan.failed = what === "failed";
    } else if (family === "pipeline") {
      plan.stage = "ended";
      plan.status = meta.status;
    }
    this.busy = plan.stage === "ended" ? undefined : this.busy;
  }

  /** A stage of the plan has a session of its own: it says who works on it. */
  #child({ stage, task_id: task, child_session_id: child }) {
    if (stage === undefined || this.plan === undefined) return;
    const owner = task === undefined ? this.plan.workers : this.plan.tasks.get(String(task));
    if (owner === undefined) return;
    if (task === undefined) owner[stage] = child;
    else owner.child = child;
    this.planChanged = true;
  }

  #task(plan, frame, meta, what) {
    const id = String(meta.task_id ?? frame.content?.task?.id);
    const task = plan.tasks.get(id) ?? { title: frame.content?.task?.title ?? id, status: "open", attempt: 0 };
    plan.tasks.set(id, task);
    task.attempt = meta.attempt ?? task.attempt;
    if (what === "start" || what === "restarted") Object.assign(task, { status: "running", fault: undefined, child: undefined });
    else task.status = what;
    task.output = frame.content?.result?.summary;
    if (what === "failed") task.fault = faultOf(frame, meta);
  }
}

/** What a page shows of a fault; the rest is asked for when somebody wants to see it. */
export function faultOf(frame, meta) {
  return {
    seq: frame.seq,
    event: frame.event,
    code: meta.error_code,
    kind: meta.kind,
    category: meta.category,
    text: typeof frame.show_content === "string" ? frame.show_content : String(frame.content),
    attempt: meta.attempt,
    max: meta.max_attempts,
    at: frame.timestamp,
  };
}

/** Whom a frame is for: those who follow along, those who decide, those who operate. */
export function channelOf(frame) {
  const { event } = frame;
  if (event === "agent.user_confirm" || event === "agent.timeout") return "control";
  if (event === "system.notice") {
    return ["confirmation_answered", "cancelling", "task_stopping", "replanning", "turn_retried"].includes(frame.metadata?.action) ? "control" : "monitor";
  }
  if (event === "agent.thinking" && frame.metadata?.streaming === false) return "monitor";
  if (event.startsWith("error.") || event.startsWith("system.") || event.startsWith("agent.session_") || event === "plan.validation_error") return "monitor";
  return "progress";
}
