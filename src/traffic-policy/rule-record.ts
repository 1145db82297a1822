import type { Phase } from './document.ts';

export interface RecordedRule {
  readonly phase: Phase;
  /** `on_http_request[0]`, or the endpoint's option that the rule stands for. */
  readonly place: string;
  readonly name: string | null;
}

export type RuleOutcome =
  /** The next rule, or the upstream, had its turn. */
  | { readonly kind: 'continue' }
  | { readonly kind: 'answer'; readonly status: number }
  /** Answered with an error page; `code` is the one of the header `ngrok-error-code`. */
  | { readonly kind: 'error'; readonly status: number; readonly code: string }
  | { readonly kind: 'close' }
  | { readonly kind: 'forward'; readonly url: string };

type Ending = Exclude<RuleOutcome, { kind: 'continue' }>;

/** A rule whose expressions were true for a request. */
export interface ActedRule extends RecordedRule {
  /** Types of its actions that ran, in order. */
  readonly actions: readonly string[];
  /** Of its last action. */
  readonly outcome: RuleOutcome;
}

const CONTINUE: RuleOutcome = { kind: 'continue' };

/** Which rules acted on one request or connection, in order. A subject with a record gets it filled in by the engine. */
export class RuleRecord {
  readonly #acted: { rule: RecordedRule; actions: string[]; outcome: RuleOutcome }[] = [];

  get acted(): ActedRule[] {
    return this.#acted.map(({ rule: { phase, place, name }, actions, outcome }) => ({
      phase,
      place,
      name,
      actions,
      outcome,
    }));
  }

  /** The expressions of a rule are true, or failed in a way that ends the request. */
  began(rule: RecordedRule): void {
    // Endless streams have any number of messages.
    if (rule.phase === 'on_event_stream_message') return;
    if (this.#acted.at(-1)?.rule !== rule) this.#acted.push({ rule, actions: [], outcome: CONTINUE });
  }

  runs(rule: RecordedRule, action: string): void {
    this.began(rule);
    const last = this.#acted.at(-1);
    if (last?.rule === rule) last.actions.push(action);
  }

  /** A phase has an outcome: its last rule is responsible. */
  ended(phase: Phase, outcome: Ending): void {
    const last = this.#acted.at(-1);
    if (last?.rule.phase === phase) last.outcome = summaryOf(outcome);
  }
}

/** Without what only carries the outcome out. */
function summaryOf(outcome: Ending): RuleOutcome {
  switch (outcome.kind) {
    case 'answer':
      return { kind: 'answer', status: outcome.status };
    case 'error':
      return { kind: 'error', status: outcome.status, code: outcome.code };
    case 'forward':
      return { kind: 'forward', url: outcome.url };
    case 'close':
      return { kind: 'close' };
  }
}
