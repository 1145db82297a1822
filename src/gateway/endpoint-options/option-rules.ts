import type { Phase, RulesByPhase } from '../../traffic-policy/document.ts';
import type { PolicyFrame } from '../../traffic-policy/policy-frame.ts';
import type { PolicyRefused } from '../../traffic-policy/policy-refused.ts';
import type { RawAction, RawRule } from '../../traffic-policy/policy-text.ts';

/** Begins the places of all rules that stand for options. */
const PLACE = 'option ';

/** Whether all that is wrong is with options, and nothing with the policy. */
export function isOfOptions({ problems }: PolicyRefused): boolean {
  return problems.every(({ place }) => place.startsWith(PLACE));
}

/** Collects the rules that options stand for. */
export class FrameBuilder {
  readonly #before: RulesByPhase<RawRule> = {};
  readonly #after: RulesByPhase<RawRule> = {};

  /**
   * Adds actions to be run before the endpoint's own policy; none for an option that is not set.
   *
   * @param option its name, for whoever has to be told what is wrong with it
   */
  before(phase: Phase, option: string, actions: readonly RawAction[]): void {
    add(this.#before, phase, option, actions);
  }

  /** The same, after the policy. */
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

/** A text for the field of an action in which `${…}` would be an expression: here it is a text. */
export function literal(text: string): string {
  // A function, for in a replacement $' would mean something else.
  return text.replaceAll('${', () => `\${'$'}{`);
}
