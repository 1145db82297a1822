import { PHASES, type RulesByPhase } from './document.ts';
import type { RawRule } from './policy-text.ts';

/** Rules from an endpoint's other options, which run before and after those of its policy. */
export interface PolicyFrame {
  readonly before: RulesByPhase<RawRule>;
  readonly after: RulesByPhase<RawRule>;
}

export function framed(rules: RulesByPhase<RawRule>, frame: PolicyFrame | undefined): RulesByPhase<RawRule> {
  if (isEmptyFrame(frame)) return rules;
  const all: RulesByPhase<RawRule> = {};
  for (const phase of PHASES) {
    all[phase] = [...(frame?.before[phase] ?? []), ...(rules[phase] ?? []), ...(frame?.after[phase] ?? [])];
  }
  return all;
}

export function isEmptyFrame(frame: PolicyFrame | undefined): boolean {
  return PHASES.every((phase) => !frame?.before[phase]?.length && !frame?.after[phase]?.length);
}
