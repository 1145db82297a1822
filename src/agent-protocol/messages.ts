import { type ZodType, z } from 'zod';
import { RpcError } from './rpc-error.ts';

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
  stopTunnel: 9,
  heartbeat: 0xffffffff,
} as const;

export function streamPrefix(type: number): Buffer {
  const prefix = Buffer.alloc(4);
  prefix.writeUInt32BE(type);
  return prefix;
}

const MAX_METADATA = 4096;

/**
 * A member that Go sends as `null` or omits where other SDKs send it empty. It is a single transform: zod's own pipe of
 * `nullish` and `transform` takes three times as long, and a BIND has twenty such members.
 */
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
      .transform((leg) => leg ?? 0),
  }),
);

export const AuthRequest = z.object({
  Version: z.array(z.string()),
  ClientId: text,
  Extra: AuthExtra,
});
export type AuthRequest = z.output<typeof AuthRequest>;

/** A certificate and its key, PEM in base64. */
const TlsTerminationOption = z.object({ cert: z.string(), key: z.string() });

/**
 * The options that set an endpoint's address and how its connections are carried; the others become policy rules. The
 * answer echoes all of them as received.
 */
export const EndpointOptions = z.object({
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
  Policy: text,
  TrafficPolicy: text,
});
export type EndpointOptions = z.output<typeof EndpointOptions>;

export const BindRequest = z.object({
  Id: text,
  Proto: text,
  ForwardsTo: metadata,
  ForwardsProto: text,
  Opts: z.unknown(),
  Extra: z
    .object({
      Token: text,
      IPPolicyRef: text,
      Metadata: metadata,
      Bindings: z
        .array(z.string())
        .nullish()
        .transform((bindings) => bindings ?? []),
      PoolingEnabled: flag,
    })
    .nullish()
    .transform((extra) => extra ?? { Token: '', IPPolicyRef: '', Metadata: '', Bindings: [], PoolingEnabled: false }),
});
export type BindRequest = z.output<typeof BindRequest>;

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

export const UnbindRequest = z.object({ Id: text });

export const CommandAnswer = z.object({ Error: text });

/**
 * Validates a message.
 *
 * @param code error code when it is invalid
 * @param subject start of the error message
 * @throws {RpcError} that lists the invalid members
 */
export function parseMessage<T>(schema: ZodType<T>, body: unknown, code: string, subject = 'the request is'): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const places = parsed.error.issues.map(({ path }) => path.join('.')).join(', ');
  throw new RpcError(code, `${subject} invalid: ${places || 'not an object'}`, { cause: parsed.error });
}
