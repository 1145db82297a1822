import { createHmac, timingSafeEqual } from 'node:crypto';

/** What a client passes through on its way to an upstream, in this order: each can be what breaks. */
export const PROBE_STAGES = ['name', 'connection', 'certificate', 'policy', 'session', 'upstream'] as const;
export type ProbeStage = (typeof PROBE_STAGES)[number];

/** What a client would get. */
export interface ProbeOutcome {
  /** The stage that broke; null: none. */
  readonly stage: ProbeStage | null;
  /** What broke, or what was not tried; null: nothing. */
  readonly message: string | null;
}

export const REACHED: ProbeOutcome = { stage: null, message: null };

/** Says that a request is a probe, and in the response what it has found. */
export const PROBE_HEADER = 'gateway-probe';
/** So that the edge looks at no other requests for it. */
export const PROBE_METHOD = 'HEAD';
const PERIOD_MS = 60_000;
const NOTHING = '-';

/** Tells probes from the requests of clients. Nodes have the same key. */
export class ProbeTokens {
  static readonly PURPOSE = 'probe';

  constructor(
    private readonly keys: () => readonly string[],
    private readonly now: () => number = Date.now,
  ) {}

  issue(host: string): string {
    return tokenOf(this.keys()[0] ?? '', host, this.#period);
  }

  /** Whether it was issued for a host within two minutes. */
  isValid(host: string, token: string): boolean {
    const sent = Buffer.from(token);
    return this.keys().some((key) =>
      [-1, 0, 1].some((offset) => {
        const expected = Buffer.from(tokenOf(key, host, this.#period + offset));
        return sent.length === expected.length && timingSafeEqual(sent, expected);
      }),
    );
  }

  get #period(): number {
    return Math.floor(this.now() / PERIOD_MS);
  }
}

function tokenOf(key: string, host: string, period: number): string {
  return createHmac('sha256', key).update(`${period} ${host}`).digest('base64url');
}

/** Characters of a message: percent-encoded, they fit into what is parsed. */
const MAX_MESSAGE = 200;

export function probeText({ stage, message }: ProbeOutcome): string {
  // Half of a character, which cannot be encoded, becomes a replacement.
  const shown = message && encodeURIComponent(Buffer.from(message.slice(0, MAX_MESSAGE)).toString());
  return `${stage ?? 'reached'} ${shown || NOTHING}`;
}

/** @returns null for a text that is none: the response is no gateway's that knows probes */
export function parseOutcome(text: string): ProbeOutcome | null {
  const [, name = '', message = ''] = /^(\w+) (\S{1,2000})$/.exec(text) ?? [];
  const stage = PROBE_STAGES.find((each) => each === name) ?? null;
  if (stage === null && name !== 'reached') return null;
  try {
    return { stage, message: message === NOTHING ? null : decodeURIComponent(message) };
  } catch {
    return null; // an upstream may send anything
  }
}
