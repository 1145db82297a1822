import type { Case, Client } from './client.ts';

/** A client's cases, judged. */
export interface Outcome {
  client: string;
  what: string;
  /** Of the run, as `2026-01-31`. */
  date: string;
  passed: number;
  expected: { name: string; reason: string }[];
  /** Names of cases that failed without an expectation, and of expected failures that passed or did not run. */
  failed: string[];
}

/** Compares the cases with what is expected of the client. */
export function judge({ title, what, expected }: Client, cases: readonly Case[], date: string): Outcome {
  const failures = new Set(cases.filter(({ status }) => status === 'failed').map(({ name }) => name));
  const reasons = Object.entries(expected);
  return {
    client: title,
    what,
    date,
    passed: cases.length - failures.size,
    expected: reasons.filter(([name]) => failures.has(name)).map(([name, reason]) => ({ name, reason })),
    failed: [
      ...(cases.length === 0 ? ['nothing was tried'] : []),
      ...[...failures].filter((name) => expected[name] === undefined),
      ...reasons.filter(([name]) => !failures.has(name)).map(([name]) => `${name} (expected to fail)`),
    ],
  };
}

/** The outcome as text for a terminal. */
export function describe({ client, passed, expected, failed }: Outcome): string {
  return [
    `${client}: ${passed} passed, ${failed.length} failed, ${expected.length} expected to fail`,
    ...failed.map((name) => `  failed: ${name}`),
    ...expected.map(({ name, reason }) => `  expected to fail: ${name}: ${reason}`),
  ].join('\n');
}
