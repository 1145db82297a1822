import { type ReadonlySignal, signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useId, useRef } from 'preact/hooks';
import type { PolicyTextAnswer, PolicyTextProblem } from '../../agent/api/page/page-routes.ts';
import type { WantedAccess } from '../ui/access-form.tsx';
import { type ApiProblem, call } from '../ui/api.ts';
import { Choice } from '../ui/field.tsx';

/** Writes a policy, in YAML or JSON, with examples to begin with. */
export function PolicyEditor({ draft }: { draft: PolicyDraft }): JSX.Element {
  return (
    <div class="policy">
      <Choice
        label="Format"
        value={draft.format.value}
        options={[
          { value: 'yaml', label: 'YAML' },
          { value: 'json', label: 'JSON' },
        ]}
        onChange={(format) => void draft.use(format)}
      />
      {draft.isReplaceable && (
        <fieldset class="field chips">
          <legend class="hint">Begin with:</legend>
          {POLICY_EXAMPLES.map(({ name, policy }) => (
            <button key={name} type="button" class="chip" onClick={() => void draft.show(policy)}>
              {name}
            </button>
          ))}
        </fieldset>
      )}
      <CodeEditor
        label="Traffic policy"
        value={draft.text.value}
        onInput={(value) => draft.edit(value)}
        problems={draft.problems.value}
        hint="Rules by phase: on_tcp_connect, on_http_request and on_http_response."
      />
    </div>
  );
}

/** Policies to begin with. */
const POLICY_EXAMPLES: readonly { name: string; policy: object }[] = [
  {
    name: 'Password',
    policy: {
      on_http_request: [
        { actions: [{ type: 'basic-auth', config: { credentials: ['user:choose-a-long-password'] } }] },
      ],
    },
  },
  {
    name: 'Allowed addresses',
    policy: {
      on_http_request: [{ actions: [{ type: 'restrict-ips', config: { allow: ['203.0.113.0/24'] } }] }],
    },
  },
  {
    name: 'Rate limit',
    policy: {
      on_http_request: [
        {
          actions: [
            {
              type: 'rate-limit',
              config: {
                name: 'per client',
                algorithm: 'sliding_window',
                capacity: 60,
                rate: '1m',
                bucket_key: ['conn.client_ip'],
              },
            },
          ],
        },
      ],
    },
  },
  {
    name: 'Response header',
    policy: {
      on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { 'x-served-by': 'my device' } } }] }],
    },
  },
];

/** A problem at its place; lines and columns count from 1. */
export interface PlacedProblem {
  line: number;
  column: number;
  message: string;
}

export interface CodeEditorProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  problems: readonly PlacedProblem[];
  hint?: string;
  rows?: number;
}

/** A text area with line numbers. Problems are marked at their lines, and listed below; each leads to its place. */
function CodeEditor({ label, value, onInput, problems, hint, rows = 14 }: CodeEditorProps): JSX.Element {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const wrong = new Set(problems.map(({ line }) => line));
  const count = value.split('\n').length;
  const goTo = ({ line, column }: PlacedProblem) => {
    const { current } = area;
    if (!current) return;
    const before = value.split('\n').slice(0, line - 1);
    const at = before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
    current.focus();
    current.setSelectionRange(at, at);
    const lineHeight = current.scrollHeight / Math.max(count, 1);
    current.scrollTop = Math.max(0, (line - 3) * lineHeight);
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="editor">
        <div class="gutter" ref={gutter} aria-hidden="true">
          {Array.from({ length: count }, (_, at) => (
            <span key={at} class={wrong.has(at + 1) ? 'number wrong' : 'number'}>
              {at + 1}
            </span>
          ))}
        </div>
        <textarea
          id={id}
          ref={area}
          rows={rows}
          wrap="off"
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          value={value}
          aria-invalid={problems.length > 0}
          aria-describedby={`${id}-hint ${id}-problems`}
          onInput={(event) => onInput(event.currentTarget.value)}
          onScroll={(event) => {
            if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
      <ul id={`${id}-problems`} class="editor-problems" aria-live="polite">
        {problems.map((problem) => (
          <li key={`${problem.line}:${problem.column} ${problem.message}`}>
            <button type="button" class="link" onClick={() => goTo(problem)}>
              Line {problem.line}
            </button>{' '}
            {problem.message}
          </li>
        ))}
      </ul>
    </div>
  );
}

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
  readonly #people = signal<PolicyTextAnswer['people']>(null);
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

  /** Which people of the gateway the policy lets sign in; null: it does not ask for them. */
  get people(): PolicyTextAnswer['people'] {
    return this.#people.value;
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
   * @returns the password in it, if a new one is; undefined when the text cannot be read
   */
  async admit(access: WantedAccess): Promise<string | null | undefined> {
    const { text, password } = await this.#ask({ format: this.#format.value, access });
    if (text === null) return undefined;
    this.#text.value = text;
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
    more: { format?: Format; details?: Record<string, string>; access?: WantedAccess } = {},
  ): Promise<PolicyTextAnswer> {
    window.clearTimeout(this.#timer);
    const request = ++this.#request;
    const text = this.#text.value;
    const answer = await call<PolicyTextAnswer>('POST', '/page/policy', { text, protocol: this.protocol(), ...more });
    if (request === this.#request) {
      this.#problems.value = answer.problems;
      this.#people.value = answer.people;
    }
    return answer;
  }
}

function json(policy: object): string {
  return `${JSON.stringify(policy, null, 2)}\n`;
}
