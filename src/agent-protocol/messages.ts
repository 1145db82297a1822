import { type ZodType, z } from 'zod';
import { RpcError } from './rpc.ts';

// Messages were recorded with `@ngrok/ngrok` 1.7.0; members that only the Go SDK sends come from its public source.

/** The first four bytes of every stream, big endian. */
export const StreamType = {
  auth: 0,
  bind: 1,
  unbind: 2,
  proxy: 3,
  restart: 4,
  stop: 5,
  update: 6,
  bindLabeled: 7,
  /** The Go SDK's `Diagnose`. */
  serverInfo: 8,
  stopTunnel: 9,
  /** The Go SDK's `Update`. */
  patchTunnel: 10,
  /** Of this project only: makes a connection a further link of a session; a ticket of that session is valid once. */
  link: 0xfffffffe,
  linkTicket: 0xfffffffc,
  /** Of this project only: reports of the requests to an endpoint, as lines of JSON until a side ends the stream. */
  requests: 0xfffffffd,
  /** Of this project only, to agents that announce it: the gateway has refused an endpoint's response to a client. */
  refusedAnswer: 0xfffffffa,
  /** Of this project only, to gateways that announce it: whether the upstream of an endpoint can be reached. */
  upstreamState: 0xfffffff9,
  /** Of this project only, to gateways that announce it: what a device has counted while it had no session. */
  timesAway: 0xfffffff8,
  /** Of this project only, to gateways that announce it: how far apart the agent's heartbeats are from now on. */
  pace: 0xfffffff7,
  /** Of this project only, to gateways that announce it: how the device's data budget stands. */
  dataBudget: 0xfffffff6,
  /** Of this project only, between peers that both announce several links: a part of a client's stream on another link. */
  part: 0xfffffff4,
  /** Of this project only, to gateways that announce several links: the agent closes this one unless it is in use. */
  linkEnd: 0xfffffff5,
  /** Of this project only, to its native connector: whether the device's link is metered, as an operator says. */
  linkKind: 0xfffffff3,
  /** Of this project only: the other gateways of a cluster, where an agent may have a second session. */
  otherNodes: 0xfffffffb,
  heartbeat: 0xffffffff,
} as const;

export function streamPrefix(type: number): Buffer {
  const prefix = Buffer.alloc(4);
  prefix.writeUInt32BE(type);
  return prefix;
}

const MAX_METADATA = 4096;
const MAX_NODES = 64;
/** The largest number that fits in four bytes. */
const MAX_LINK_NUMBER = 4_294_967_295;
const MAX_WARNINGS = 10;
const MAX_ANNOTATION = 255;

/** A member that Go omits or sends as `null`. One transform: zod's pipe takes three times as long, and a BIND has twenty. */
function orEmpty<T extends string | boolean>(empty: T) {
  return z.transform((value: unknown, context): T => {
    if (value === undefined || value === null) return empty;
    if (typeof value === typeof empty) return value as T;
    context.issues.push({ code: 'custom', message: `is not a ${typeof empty}`, input: value });
    return z.NEVER;
  });
}

const text = orEmpty<string>('');
const flag = orEmpty<boolean>(false);

/** Opaque text that the gateway stores for the agent. */
const metadata = text.refine((value) => value.length <= MAX_METADATA);

/** A list of texts. Its length is checked first: each wrong element would become a problem of its own. */
function texts(max: number) {
  return z.transform((value: unknown, context): string[] => {
    if (Array.isArray(value) && value.length <= max && value.every((item) => typeof item === 'string')) return value;
    context.issues.push({ code: 'custom', message: `is not a list of up to ${max} texts`, input: value });
    return z.NEVER;
  });
}

const NANOSECONDS_PER_MS = 1e6;

const milliseconds = (fallback: number) =>
  z
    .number()
    .nullish()
    .transform((nanoseconds) => (nanoseconds ? nanoseconds / NANOSECONDS_PER_MS : fallback));

/** The Rust SDKs send `AuthToken`, Go sends `Authtoken`. */
function withLowerCaseKeys(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key.toLowerCase(), member]));
}

/** The largest window of a stream that the sender supports, in bytes; 0 for nonsense: it must keep nobody offline. */
const streamWindow = z.transform((value: unknown) =>
  Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : 0,
);

const announced = z.transform((value: unknown) => value === true);

/** How many links of a session the sender supports; 0 for nonsense. */
const linkCount = z.transform((value: unknown) =>
  Number.isSafeInteger(value) && Number(value) > 2 ? Number(value) : 0,
);

const announcedText = z.transform((value: unknown) => (typeof value === 'string' ? value : ''));

const AuthExtra = z.preprocess(
  withLowerCaseKeys,
  z.object({
    authtoken: text,
    metadata,
    clienttype: text,
    version: text,
    os: text,
    heartbeatinterval: milliseconds(10_000),
    heartbeattolerance: milliseconds(15_000),
    /** Above 0: an additional connection of the same agent (Go); it does not replace the first. */
    legnumber: z
      .number()
      .nullish()
      .transform((count) => count ?? 0),
    streamwindow: streamWindow,
    secondlink: announced,
    links: linkCount,
    requestfeed: announced,
    nodes: announced,
    refusedanswers: announced,
    policywarnings: announced,
    upstreamstates: announced,
    timesaway: announced,
    heartbeatpace: announced,
    shortanswers: announced,
    databudgets: announced,
    metered: announced,
  }),
);

export const AuthRequest = z.object({
  Version: texts(16),
  ClientId: text,
  Extra: AuthExtra,
});
export type AuthRequest = z.output<typeof AuthRequest>;

/** A certificate and its key, PEM in base64; both empty for one of the gateway's, which most SDKs send back as `{}`. */
const TlsTerminationOption = z.object({ cert: text, key: text });

/** Older SDKs send an object (Python to 1.3, Java 1.0, JavaScript to 1.3). */
const policy = z.preprocess((value) => (typeof value === 'object' && value ? policyOfObject(value) : value), text);

/** The options for an endpoint's address and its connections; others become policy rules. The answer echoes all of them. */
export const BindOptions = z.object({
  Addr: text,
  Domain: text,
  Hostname: text,
  Subdomain: text,
  URL: text,
  Auth: text,
  HostHeaderRewrite: flag,
  ProxyProto: z
    .union([z.number(), z.string().transform(Number)])
    .nullish()
    .transform((value) => value || 0)
    .pipe(z.union([z.literal(0), z.literal(1), z.literal(2)])),
  MutualTLSAtAgent: flag,
  TLSTermination: TlsTerminationOption.nullish(),
  Policy: policy,
  TrafficPolicy: text,
});
export type BindOptions = z.output<typeof BindOptions>;

const annotation = text.refine((value) => value.length <= MAX_ANNOTATION);

/** A member that no SDK known to us sends could restrict access, so it is refused rather than ignored. */
const unknownMember = z.unknown().refine((value) => (Array.isArray(value) ? value.length === 0 : !value));

const BindExtra = z.preprocess(
  (extra) => extra ?? {},
  z
    .object({
      Token: text,
      IPPolicyRef: text,
      Metadata: metadata,
      Name: annotation,
      Description: annotation,
      /** The Go SDK's first version sends a single one. */
      Binding: text,
      Bindings: texts(16).nullish(),
      PoolingEnabled: flag,
      /** Of the answer; it says nothing. */
      TunnelID: z.unknown().optional(),
    })
    .catchall(unknownMember)
    .transform(({ Binding, Bindings, TunnelID: _, ...extra }) => ({
      ...extra,
      Bindings: [...(Bindings ?? []), ...(Binding === '' ? [] : [Binding])],
    })),
);

export const BindRequest = z.object({
  Id: text,
  Proto: text,
  ForwardsTo: metadata,
  ForwardsProto: text,
  Opts: z.unknown(),
  Extra: BindExtra,
});
export type BindRequest = z.output<typeof BindRequest>;

/** Changes an endpoint that is online; absent members stay as they are. */
export const PatchRequest = z.object({
  TunnelId: z.string(),
  Name: annotation.nullish(),
  Description: annotation.nullish(),
  Metadata: metadata.nullish(),
  PoolingEnabled: z.boolean().nullish(),
  TrafficPolicy: z.string().nullish(),
});
export type PatchRequest = z.output<typeof PatchRequest>;

const MAX_LABELS = 50;
const labelText = z
  .string()
  .max(255)
  .refine((part) => !part.includes('='));

export const BindLabeledRequest = z.object({
  Labels: z
    .record(labelText.min(1), labelText)
    .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `more than ${MAX_LABELS} labels`),
  ForwardsTo: metadata,
  ForwardsProto: text,
  Metadata: metadata,
});
export type BindLabeledRequest = z.output<typeof BindLabeledRequest>;

/** `Drain`: what is under way may continue until the session ends. Only agents of this project send it. */
export const UnbindRequest = z.object({ Id: text, Drain: flag });
export type UnbindRequest = z.output<typeof UnbindRequest>;

/** `Down`: the agent cannot connect to it. */
export const UpstreamState = z.object({ Id: z.string(), Down: z.boolean() });
export type UpstreamState = z.output<typeof UpstreamState>;

/** Slots of ten minutes, in seconds: what agents report is as fine as that. */
export const SLOT_SECONDS = 600;
/** Of a day, with the one that has begun. */
const MAX_SLOTS = 86_400 / SLOT_SECONDS + 1;

const seconds = z.int().nonnegative();
const reading = z.number().nullable();

/**
 * When one of ten minutes began, for how many of its seconds the agent ran without a session, and what its machine said at its end:
 * degrees Celsius, available bytes of memory and of the disk, dBm of its wireless network.
 */
const SlotAway = z.tuple([seconds, seconds.max(SLOT_SECONDS), ...([reading, reading, reading, reading] as const)]);
export type SlotAway = z.output<typeof SlotAway>;

/** `Now`, and when slots began: in whole seconds since 1970, by the agent's clock, which may be wrong. */
export const TimesAway = z.object({ Now: seconds, Slots: z.array(SlotAway).max(MAX_SLOTS) });
export type TimesAway = z.output<typeof TimesAway>;
/** `IntervalMs`, in milliseconds: what the agent would like, and in the answer what the gateway grants. */
export const PaceRequest = z.object({ IntervalMs: z.number().positive() });
export type PaceRequest = z.output<typeof PaceRequest>;
export const PaceAnswer = z.object({ Error: text, IntervalMs: z.number().positive().catch(0) });

const MAX_EXEMPT = 8;

/** Of a period that a budget is for. */
const secondsLeft = z
  .number()
  .min(0)
  .max(32 * 86_400);

/**
 * `RetryAfterS` above 0: the gateway opens streams only to the exempt endpoints, named by the ids of their answers. `BackInS`
 * above 0: the agent leaves, and comes back then. The rest is for people; agents of earlier versions do not say it.
 */
export const BudgetReport = z.object({
  UsedPercent: z.number().min(0).max(1000),
  RetryAfterS: secondsLeft,
  Exempt: texts(MAX_EXEMPT),
  LimitBytes: z.number().min(0).max(1e18).default(0),
  PeriodS: secondsLeft.default(0),
  BackInS: secondsLeft.default(0),
});
export type BudgetReport = z.output<typeof BudgetReport>;

/** `Metered` null: as the device says itself. */
export const LinkKindCommand = z.object({ Metered: z.boolean().nullable() });

export const CommandAnswer = z.object({ Error: text });

/** The longest time that an agent lets a gateway keep it away. */
const MOST_RETRY_AFTER_S = 600;

/** Answers that agents get; `Error` is set when the gateway refuses. */
export const AuthAnswer = z.object({
  Error: text,
  /** With an error: when the agent may try again. Of this project only. */
  RetryAfterS: z
    .int()
    .min(1)
    .transform((seconds) => Math.min(seconds, MOST_RETRY_AFTER_S))
    .nullable()
    .catch(null),
  ClientId: text,
  Extra: z
    .object({
      StreamWindow: streamWindow,
      SecondLink: announced,
      Links: linkCount,
      Ticket: announcedText,
      RequestFeed: announced,
      UpstreamStates: announced,
      TimesAway: announced,
      HeartbeatPace: announced,
      DataBudgets: announced,
      Metered: z.boolean().nullable().catch(null),
      Node: announcedText,
    })
    .catch({
      ...{ StreamWindow: 0, SecondLink: false, Links: 0, Ticket: '', RequestFeed: false },
      ...{ UpstreamStates: false, TimesAway: false, HeartbeatPace: false, DataBudgets: false, Metered: null, Node: '' },
    }),
});

/** `Nodes`: addresses of their HTTPS ports, `host:port`. `Name`: the server name for sessions there. */
export const OtherNodesAnswer = z.object({ Error: text, Nodes: texts(MAX_NODES).catch([]), Name: text });

export const LinkTicket = z.object({ Error: text, Ticket: text });

/** `Link`: its number among those of the session, where both sides support several. */
export const LinkRequest = z.object({
  AuthToken: text,
  SessionId: text,
  Ticket: text,
  Link: z.int().min(0).max(MAX_LINK_NUMBER).catch(0),
});
export type LinkRequest = z.output<typeof LinkRequest>;

/** `Id` is the one of the answer that bound the endpoint. */
export const RequestsRequest = z.object({ Id: z.string() });

/**
 * To agents that announce warnings, and of this project only: `Warnings`, what is probably a mistake in the policy, and `DomainURL`,
 * where clients reach the endpoint besides.
 */
export const BindAnswer = z.object({
  Error: text,
  Id: text,
  URL: text,
  Warnings: texts(MAX_WARNINGS).catch([]),
  DomainURL: text.catch(''),
});
export type BindAnswer = z.output<typeof BindAnswer>;

/** Header of a stream that the gateway opens for a client's connection. */
export const ProxyHeader = z.object({ Id: z.string(), Proto: text });
export type ProxyHeader = z.output<typeof ProxyHeader>;

/** Characters of what is wrong with a response. */
const MAX_REASON = 500;

export const RefusedAnswer = z.object({ Id: z.string(), Reason: z.string().max(MAX_REASON) });

export const StopTunnel = z.object({ Id: z.string(), Message: text, ErrorCode: text });
export type StopTunnel = z.output<typeof StopTunnel>;

/** Invalid members that an error message names. */
const MAX_NAMED = 5;
const MAX_PLACE = 100;

/** @param subject start of the error message @throws {RpcError} that lists the first invalid members */
export function parseMessage<T>(schema: ZodType<T>, body: unknown, code: string, subject = 'the request is'): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  const places = issues.slice(0, MAX_NAMED).map(({ path }) => path.join('.').slice(0, MAX_PLACE));
  if (issues.length > MAX_NAMED) places.push('…');
  throw new RpcError(code, `${subject} invalid: ${places.join(', ') || 'not an object'}`, { cause: parsed.error });
}

const Rules = z
  .array(
    z.object({
      Name: z.string().nullish(),
      Expressions: z.array(z.string()).nullish(),
      Actions: z.array(z.object({ Type: z.string(), Config: z.string().nullish() })).nullish(),
    }),
  )
  .nullish();

const PolicyObject = z.strictObject({ Inbound: Rules, Outbound: Rules });

/**
 * The text of a traffic policy that an SDK sent as an object: rules with capitalised members, and the configuration of an
 * action as JSON in base64 (recorded from ngrok's Python SDK 1.3). Anything else is returned as it is.
 */
export function policyOfObject(value: object): unknown {
  const parsed = PolicyObject.safeParse(value);
  if (!parsed.success) return value;
  try {
    return JSON.stringify({ inbound: rules(parsed.data.Inbound), outbound: rules(parsed.data.Outbound) });
  } catch {
    // A configuration that is not JSON: the message is refused as one with a wrong type.
    return value;
  }
}

function rules(sent: z.output<typeof Rules>): object[] {
  return (sent ?? []).map(({ Name, Expressions, Actions }) => ({
    ...(Name && { name: Name }),
    expressions: Expressions ?? [],
    actions: (Actions ?? []).map(({ Type, Config }) => ({
      type: Type,
      ...(Config && { config: JSON.parse(Buffer.from(Config, 'base64').toString()) }),
    })),
  }));
}
