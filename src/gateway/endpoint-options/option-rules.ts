import type { PolicyFrame } from '../../traffic-policy/compile-rules.ts';
import type { Phase, RulesByPhase } from '../../traffic-policy/document.ts';
import type { PolicyRefused } from '../../traffic-policy/policy-errors.ts';
import type { RawAction, RawRule } from '../../traffic-policy/policy-text.ts';

const PLACE = 'option ';

/** Whether all problems are in options, and none in the policy. */
export function isOfOptions({ problems }: PolicyRefused): boolean {
  return problems.every(({ place }) => place.startsWith(PLACE));
}

export class FrameBuilder {
  readonly #before: RulesByPhase<RawRule> = {};
  readonly #after: RulesByPhase<RawRule> = {};

  /** Adds actions that run before the endpoint's own policy. */
  before(phase: Phase, option: string, actions: readonly RawAction[]): void {
    add(this.#before, phase, option, actions);
  }

  /** Adds actions that run after the policy. */
  after(phase: Phase, option: string, actions: readonly RawAction[]): void {
    add(this.#after, phase, option, actions);
  }

  build(): PolicyFrame {
    return { before: this.#before, after: this.#after };
  }
}

function add(rules: RulesByPhase<RawRule>, phase: Phase, option: string, actions: readonly RawAction[]): void {
  if (actions.length === 0) return;
  rules[phase] = [...(rules[phase] ?? []), { place: PLACE + option, expressions: [], actions }];
}

/** Escapes `${…}` for an action's field, where it would be an expression. */
export function literal(text: string): string {
  // A function: in a replacement string, $' has a special meaning.
  return text.replaceAll('${', () => `\${'$'}{`);
}
