import { z } from 'zod';
import { ACTION_TYPES, type ActionType } from './action-types.ts';
import { isHeaderText } from './header-text.ts';

const MAX_HEADERS = 10;

const HeaderName = z.string().refine((name) => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/.test(name), {
  error: 'is not a valid header name',
  params: { ngrok: 'ERR_NGROK_2210' },
});

/** ngrok's documentation has examples with numbers and booleans. The value of `${…}` is checked when it is known. */
const HeaderValue = z
  .union([z.string(), z.number(), z.boolean()], { error: 'must be a string, a number or a boolean' })
  .refine((value) => typeof value !== 'string' || value.includes('${') || isHeaderText(value), {
    error: 'has a character that a header cannot carry',
    params: { ngrok: 'ERR_NGROK_2211' },
  });

export const Headers = z
  .record(HeaderName, HeaderValue)
  .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, {
    error: `must have at most ${MAX_HEADERS} headers`,
    params: { ngrok: 'ERR_NGROK_2212' },
  });

function isConfigurable(name: string): boolean {
  const lower = name.toLowerCase();
  return lower !== 'user-agent' && lower !== 'ngrok-skip-browser-warning';
}

function refuseFixedHeaders(names: readonly string[], context: z.RefinementCtx): void {
  for (const name of names) {
    if (isConfigurable(name)) continue;
    context.addIssue({ code: 'custom', message: `${name} cannot be changed`, params: { ngrok: 'ERR_NGROK_2219' } });
  }
}

export const AddHeadersConfig = z.strictObject({
  headers: Headers.refine((headers) => Object.keys(headers).length > 0, {
    error: 'must have at least one header',
    params: { ngrok: 'ERR_NGROK_2223' },
  })
    .superRefine((headers, context) => refuseFixedHeaders(Object.keys(headers), context))
    .describe(`Headers that are added, at most ${MAX_HEADERS}; values may contain expressions.`),
});

export const RemoveHeadersConfig = z.strictObject({
  headers: z
    .array(HeaderName)
    .min(1)
    .max(MAX_HEADERS)
    .superRefine(refuseFixedHeaders)
    .describe(`Names of headers that are removed, at most ${MAX_HEADERS}.`),
});

/** A final status: after an interim one the client would wait for another response. */
const StatusCode = z.int().min(200).max(599);

export const DenyConfig = z.strictObject({
  status_code: StatusCode.optional().describe('Status of the response, from 200 to 599; by default 403.'),
});

export const CustomResponseConfig = z.strictObject({
  status_code: StatusCode.optional().describe('Status of the response, from 200 to 599; by default 200.'),
  body: z.string().optional().describe('Body of the response; may contain expressions.'),
  headers: Headers.optional().describe(
    `Headers of the response, at most ${MAX_HEADERS}; values may contain expressions.`,
  ),
});

/** Also accepts `content` and `content_type` of the legacy shape. */
export const CustomResponseInput = CustomResponseConfig.extend({
  content: z.string().optional().describe('Body of the response, in policies of the legacy shape.'),
  content_type: HeaderValue.optional().describe('Content type of the response, in policies of the legacy shape.'),
});

/** Configurations that the agent checks. The gateway checks those of all other actions. */
export const CHECKED_CONFIGS = {
  'add-headers': AddHeadersConfig,
  'remove-headers': RemoveHeadersConfig,
  deny: DenyConfig.nullish(),
  'custom-response': CustomResponseInput.nullish(),
} satisfies Partial<Record<ActionType, z.ZodType>>;
type CheckedAction = keyof typeof CHECKED_CONFIGS;

export const OPAQUE_ACTIONS = ACTION_TYPES.filter(
  (type): type is Exclude<ActionType, CheckedAction> => !Object.hasOwn(CHECKED_CONFIGS, type),
);

const UNITS = new Map([
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
]);

/** @returns the milliseconds of a duration such as `90s`, `10m` or `1h30m`; null for any other text */
function parseDuration(text: string): number | null {
  if (!/^(?:\d{1,9}(?:\.\d{1,3})?(?:h|ms|m|s))+$/.test(text)) return null;
  let total = 0;
  for (const [, number, unit] of text.matchAll(/([\d.]+)(h|ms|m|s)/g))
    total += Number(number) * (UNITS.get(unit ?? '') ?? 0);
  return total;
}

export function durationBetween(minMs: number, maxMs: number) {
  return z.string().transform((text, context) => {
    const ms = parseDuration(text);
    if (ms !== null && ms >= minMs && ms <= maxMs) return ms;
    const [code, message] =
      ms === null
        ? ['ERR_NGROK_2228', 'must be a duration such as 90s, 10m or 1h']
        : ['ERR_NGROK_2225', `must be between ${shortest(minMs)} and ${shortest(maxMs)}`];
    context.addIssue({ code: 'custom', message, params: { ngrok: code } });
    return z.NEVER;
  });
}

/** As policies write it. */
function shortest(ms: number): string {
  return ms % 3_600_000 === 0 ? `${ms / 3_600_000}h` : `${ms / 1000}s`;
}

/** What the edge is told of the upstream of an `http` endpoint, by `gateway-upstream` and by the agent's tunnels. */
export const UpstreamConfig = z.strictObject({
  max_connections: z
    .int({ error: 'must be a whole number from 1 to 1000' })
    .min(1, 'must be from 1 to 1000')
    .max(1000, 'must be from 1 to 1000')
    .meta({ description: 'Connections to the upstream at a time; further requests wait for one.' })
    .optional(),
  response_timeout: durationBetween(1000, 86_400_000).optional(),
  host_header: z
    .string({ error: 'must be rewrite or a hostname' })
    .regex(/^(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i, 'must be rewrite or a hostname')
    .optional(),
  rewrite_redirects: z.boolean({ error: 'must be true or false' }).optional(),
});
export type UpstreamConfig = z.output<typeof UpstreamConfig>;
