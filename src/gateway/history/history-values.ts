import type { SessionEnd } from '../endpoints/session-end.ts';
import { ENDINGS, LATENCY_BOUNDS, LATENCY_CLASSES, latencyOf } from '../endpoints/traffic-counts.ts';

const LATENCY_COLUMNS = Array.from({ length: LATENCY_CLASSES }, (_, at) => `latency_${LATENCY_BOUNDS[at] ?? 'more'}`);

/** What a row of the history has, in this order: numbers that may be added up, over time and over gateways. */
export const COLUMNS: readonly string[] = [
  'requests',
  ...ENDINGS,
  ...LATENCY_COLUMNS,
  'received',
  'sent',
  'reconnects',
  'online',
];

/** Begins names of reasons among the tallies; types of actions have no colon. */
const SESSIONS = 'session:';
const ENDED_AT = 1;
const LATENCY_AT = ENDED_AT + ENDINGS.length;
const RECEIVED_AT = LATENCY_AT + LATENCY_CLASSES;

/** What is counted of an endpoint, a device or a gateway in some time. */
export class Values {
  readonly numbers = new Float64Array(COLUMNS.length);
  /** What is counted by name: refused requests by type of action, and ended sessions by reason, see {@link sessionsEnded}; null: none. */
  tallies: Record<string, number> | null = null;

  static of(numbers: ArrayLike<number>, tallies: Values['tallies']): Values {
    const values = new Values();
    values.numbers.set(numbers);
    values.tallies = tallies;
    return values;
  }

  get isZero(): boolean {
    return this.tallies === null && this.numbers.every((value) => value === 0);
  }

  add({ numbers, tallies }: Values): this {
    for (let at = 0; at < numbers.length; at++) this.numbers[at] = (this.numbers[at] ?? 0) + (numbers[at] ?? 0);
    for (const [name, times] of Object.entries(tallies ?? {})) {
      this.#tally(name, times);
    }
    return this;
  }

  /** What has been added since it was `before`. */
  since(before: Values): Values {
    const numbers = this.numbers.map((value, at) => value - (before.numbers[at] ?? 0));
    const grown = Object.entries(this.tallies ?? {})
      .map(([name, times]) => [name, times - (before.tallies?.[name] ?? 0)] as const)
      .filter(([, times]) => times > 0);
    return Values.of(numbers, grown.length === 0 ? null : Object.fromEntries(grown));
  }

  /** Refused requests by type of action. */
  get refusals(): Record<string, number> {
    return this.#tallied((name) => (name.startsWith(SESSIONS) ? null : name));
  }

  /** Sessions of agents that have ended, or were refused, by reason. */
  get sessionsEnded(): Record<string, number> {
    return this.#tallied((name) => (name.startsWith(SESSIONS) ? name.slice(SESSIONS.length) : null));
  }

  countSession(end: SessionEnd, times: number): void {
    this.#tally(SESSIONS + end, times);
  }

  #tally(name: string, times: number): void {
    this.tallies ??= {};
    this.tallies[name] = (this.tallies[name] ?? 0) + times;
  }

  #tallied(nameOf: (name: string) => string | null): Record<string, number> {
    const named = Object.entries(this.tallies ?? {}).map(([name, times]) => [nameOf(name), times] as const);
    return Object.fromEntries(named.filter(([name]) => name !== null)) as Record<string, number>;
  }

  get requests(): number {
    return this.numbers[0] ?? 0;
  }

  set requests(value: number) {
    this.numbers[0] = value;
  }

  /** How requests have ended, and their latency, as `EndedRequests` counts them. */
  get ended(): Float64Array {
    return this.numbers.subarray(ENDED_AT, RECEIVED_AT);
  }

  /** Of clients, in bytes. */
  get received(): number {
    return this.numbers[RECEIVED_AT] ?? 0;
  }

  get sent(): number {
    return this.numbers[RECEIVED_AT + 1] ?? 0;
  }

  setBytes(received: number, sent: number): void {
    this.numbers[RECEIVED_AT] = received;
    this.numbers[RECEIVED_AT + 1] = sent;
  }

  get reconnects(): number {
    return this.numbers[RECEIVED_AT + 2] ?? 0;
  }

  set reconnects(value: number) {
    this.numbers[RECEIVED_AT + 2] = value;
  }

  /** Seconds online of days whose runs are no longer kept. */
  get online(): number {
    return this.numbers[RECEIVED_AT + 3] ?? 0;
  }

  /** See {@link latencyOf}. @param share such as 0.95 */
  latency(share: number): number | null {
    return latencyOf(this.numbers.subarray(LATENCY_AT, RECEIVED_AT), share);
  }
}
