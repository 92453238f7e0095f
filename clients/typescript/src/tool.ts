// Functions as tools: what an author writes, and what a worker offers of it.

/** JSON Schema of an object. */
export type JsonSchema = Record<string, unknown>;

/** The part of a schema library that is used: zod 4.2 or newer, and others that follow Standard Schema. */
export interface StandardSchema<T> {
  readonly "~standard": {
    readonly types?: { readonly output: T } | undefined;
    readonly validate: (value: unknown) => unknown;
    readonly jsonSchema?: { readonly input: (options: { target: string }) => JsonSchema };
  };
  readonly toJSONSchema?: (options?: never) => unknown;
}

/** What a function may know of its call. */
export interface ToolContext {
  readonly sessionId: string;
  readonly callId: string;
  readonly attempt: number;
  /** Equal for every attempt of one call: pass it to a service that accepts such keys. */
  readonly idempotencyKey: string;
  /** The W3C trace of the call. */
  readonly traceparent: string | undefined;
  /** Aborted when the call is cancelled or its time is over: pass it to `fetch` and others. */
  readonly signal: AbortSignal;
  /** Shows text to people while the call runs. Bounded: what is too much is dropped. */
  progress(text: string): void;
}

/** What a tool found out about a call whose outcome was unknown. */
export type Reconciliation = { verdict: "happened"; result: unknown } | { verdict: "did_not_happen" | "cannot_tell" };

export interface ToolOptions<T> {
  name: string;
  description: string;
  /** A zod schema, or JSON Schema of an object. */
  parameters: StandardSchema<T> | JsonSchema;
  /** It changes nothing. The runtime repeats such calls without a question. */
  readOnly?: boolean;
  /** Running it twice has the effect of running it once. */
  idempotent?: boolean;
  /** A person confirms each call. */
  confirm?: boolean;
  /** The longest a call may take, in milliseconds. */
  deadline?: number;
  /** How long a call waits for a worker, in milliseconds. */
  wait?: number;
  run: (args: T, context: ToolContext) => unknown;
  /** Finds out what became of a call. */
  reconcile?: (args: T, context: ToolContext) => Reconciliation | Promise<Reconciliation>;
}

/** How far a failed call came. */
export type CallProgress = "not_begun" | "ended" | "unconfirmed" | "done";

/** A failure that the model should read: what happened, and in `advice` what it can do about it. */
export class ToolError extends Error {
  override readonly name = "ToolError";
  readonly advice: string[];
  readonly data: unknown;
  readonly progress: CallProgress;

  constructor(message: string, options: { advice?: string | string[]; data?: unknown; progress?: CallProgress } = {}) {
    super(message);
    this.advice = [options.advice ?? []].flat();
    this.data = options.data;
    this.progress = options.progress ?? "ended";
  }
}

/** A function that an agent may call. */
export class Tool<T = unknown> {
  readonly parameters: JsonSchema;

  constructor(readonly options: ToolOptions<T>) {
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(options.name)) {
      throw new TypeError(`a tool's name has 1 to 64 letters, digits, "_" or "-": ${JSON.stringify(options.name)}`);
    }
    this.parameters = schemaOf(options.parameters);
  }

  get name(): string {
    return this.options.name;
  }

  /** The tool as a worker offers it. */
  offer(): JsonSchema {
    const { name, description, readOnly, idempotent, confirm, deadline, wait, reconcile } = this.options;
    return {
      name,
      description,
      parameters: this.parameters,
      ...(readOnly === true && { read_only: true }),
      ...(idempotent === true && { idempotent: true }),
      ...(confirm === true && { confirm: true }),
      ...(reconcile !== undefined && { reconcile: true }),
      ...(deadline !== undefined && { deadline_ms: deadline }),
      ...(wait !== undefined && { wait_ms: wait }),
    };
  }

  /** The arguments as the function takes them. Throws a {@link ToolError} if the schema library does not accept them. */
  async parse(args: unknown): Promise<T> {
    const { parameters, name } = this.options;
    if (!isStandard(parameters)) return args as T;
    const parsed = (await parameters["~standard"].validate(args)) as { value?: T; issues?: readonly Issue[] };
    if (parsed.issues === undefined) return parsed.value as T;
    const places = parsed.issues.slice(0, 20).map((issue) => `${pathOf(issue)}: ${issue.message}`);
    const advice = `Correct the arguments and call ${name} again`;
    throw new ToolError(`Invalid arguments: ${places.join("; ")}`, { advice, progress: "not_begun" });
  }
}

/** Makes a tool of a function. */
export function tool<T>(options: ToolOptions<T>): Tool<T> {
  return new Tool(options);
}

interface Issue {
  message: string;
  path?: readonly (PropertyKey | { key: PropertyKey })[];
}

function pathOf(issue: Issue): string {
  const parts = (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
  return parts.join(".") || "arguments";
}

function isStandard<T>(schema: StandardSchema<T> | JsonSchema): schema is StandardSchema<T> {
  return typeof schema["~standard"] === "object";
}

/** The JSON Schema of an object. Unknown keys are refused, so that a misspelt one is reported. */
function schemaOf<T>(parameters: StandardSchema<T> | JsonSchema): JsonSchema {
  if (!isStandard(parameters)) return parameters;
  const made = parameters.toJSONSchema?.() ?? parameters["~standard"].jsonSchema?.input({ target: "draft-2020-12" });
  if (typeof made !== "object" || made === null) {
    throw new TypeError("this schema cannot be written as JSON Schema: use zod 4.2 or newer, or pass JSON Schema");
  }
  const { $schema, ...schema } = made as JsonSchema;
  return schema["type"] === "object" ? { additionalProperties: false, ...schema } : schema;
}
