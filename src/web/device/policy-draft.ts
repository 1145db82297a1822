import { type ReadonlySignal, signal } from '@preact/signals';
import type { PolicyTextAnswer, PolicyTextProblem } from '../../agent/api/page/page-routes.ts';
import type { AccessRequest } from '../ui/access-form.tsx';
import { type ApiProblem, call } from '../ui/api.ts';

export type Format = 'yaml' | 'json';
export type Protocol = 'http' | 'tcp' | 'tls';

const POLICY_PLACE = /^(?:policy|inbound|outbound|on_\w+)\b/;
const CHECK_AFTER_MS = 400;

/** A policy while somebody writes it; the agent reads it and finds the places of problems. */
export class PolicyDraft {
  readonly #text = signal('');
  readonly #problems = signal<readonly PolicyTextProblem[]>([]);
  readonly #format = signal<Format>('yaml');
  readonly #isTyped = signal(false);
  #timer = 0;
  /** Numbers the requests, so that a late answer changes nothing. */
  #request = 0;

  constructor(private readonly protocol: () => Protocol) {}

  get text(): ReadonlySignal<string> {
    return this.#text;
  }

  get problems(): ReadonlySignal<readonly PolicyTextProblem[]> {
    return this.#problems;
  }

  get format(): ReadonlySignal<Format> {
    return this.#format;
  }

  get isEmpty(): boolean {
    return this.#text.value.trim() === '';
  }

  /** Whether an example may replace the text: nobody has typed it. */
  get isReplaceable(): boolean {
    return this.isEmpty || !this.#isTyped.value;
  }

  /** Takes what was typed, and checks it after a pause. */
  edit(text: string): void {
    this.#text.value = text;
    this.#isTyped.value = true;
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#ask().catch(() => {}), CHECK_AFTER_MS);
  }

  /** Shows a policy in the current format. */
  async show(policy: object): Promise<void> {
    this.#text.value = json(policy);
    await this.use(this.#format.value);
  }

  /**
   * Writes into the text who may come in.
   *
   * @returns the password in it, if a new one is; null also while the text cannot be read
   */
  async admit(access: AccessRequest): Promise<string | null> {
    const { text, password } = await this.#ask({ format: this.#format.value, access });
    if (text !== null) this.#text.value = text;
    return password;
  }

  /** Writes the text in another format, if it can be read. */
  async use(format: Format): Promise<void> {
    this.#format.value = format;
    if (this.isEmpty) return;
    const before = this.#text.value;
    const { text } = await this.#ask({ format }).catch(() => ({ text: null }));
    // What was typed meanwhile stays.
    if (text !== null && this.#text.value === before) this.#text.value = text;
  }

  /**
   * @returns the policy, or null when it has problems, which are shown
   * @throws {ApiProblem} when the agent does not answer
   */
  async read(): Promise<object | null> {
    return (await this.#ask()).policy;
  }

  /** Shows the problems that starting or changing the tunnel found in the policy at their places. */
  async locate(problem: ApiProblem): Promise<void> {
    const details = Object.entries(problem.details).filter(([place]) => POLICY_PLACE.test(place));
    if (details.length > 0) await this.#ask({ details: Object.fromEntries(details) }).catch(() => {});
  }

  /** Whether problems at this place of a request are shown at lines of the policy. */
  isMarked(place: string): boolean {
    return this.#problems.value.length > 0 && POLICY_PLACE.test(place);
  }

  async #ask(
    more: { format?: Format; details?: Record<string, string>; access?: AccessRequest } = {},
  ): Promise<PolicyTextAnswer> {
    window.clearTimeout(this.#timer);
    const request = ++this.#request;
    const text = this.#text.value;
    const answer = await call<PolicyTextAnswer>('POST', '/page/policy', { text, protocol: this.protocol(), ...more });
    if (request === this.#request) this.#problems.value = answer.problems;
    return answer;
  }
}

function json(policy: object): string {
  return `${JSON.stringify(policy, null, 2)}\n`;
}
