import { type LineChange, lineDifference, unified } from '../lib/line-difference.ts';
import { printableLines } from '../lib/terminal-text.ts';
import { linesOf } from './policy-lines.ts';
import { PolicyMask } from './policy-mask.ts';
import { policyValue } from './policy-text.ts';

/** A policy as it is stored: its text, and at TLS edges whether it is enabled. */
export type StoredPolicy = string | { readonly enabled: boolean; readonly value: string };

/**
 * What has changed in a policy, as `diff -u` shows it; empty: only its layout. Policies are compared as lines of YAML, whatever
 * they were written in, without comments. Secrets are masked; a line in which nothing else has changed says that they have.
 *
 * @param before null: there was none
 */
export function policyDifference(before: StoredPolicy | null, after: StoredPolicy | null): string {
  const mask = new PolicyMask();
  const [from, to] = [before, after].map((policy) => linesOfPolicy(policy, mask));
  const changes = lineDifference(from ?? [], to ?? []);
  return printableLines(unified(shownChanges(changes, mask)).join('\n'));
}

function linesOfPolicy(policy: StoredPolicy | null, mask: PolicyMask): string[] {
  if (policy === null) return [];
  const { enabled, value } = typeof policy === 'string' ? { enabled: true, value: policy } : policy;
  if (value.trim() === '') return [];
  const lines = linesOf(mask.masked(readable(value)));
  return enabled ? lines : ['# disabled', ...lines];
}

/** An earlier version may have let in what this one cannot read. */
function readable(text: string): unknown {
  try {
    return policyValue(text);
  } catch {
    return { secret: text };
  }
}

function shownChanges(changes: readonly LineChange[], mask: PolicyMask): LineChange[] {
  const removed = new Set(changes.flatMap(({ sign, line }) => (sign === '-' ? [mask.shown(line, false)] : [])));
  return changes.map(({ sign, line }) => {
    const isChanged = sign === '+' && removed.has(mask.shown(line, false));
    return { sign, line: mask.shown(line, isChanged) };
  });
}
