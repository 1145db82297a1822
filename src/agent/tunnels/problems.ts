import type { z } from 'zod';
import { placeOf } from '../../lib/plain-words.ts';

/** Stands for the place of a problem with the whole document. */
const WHOLE = '(document)';

/** Everything that a schema found wrong, each with its place. */
export function problemList(error: z.ZodError): string[] {
  return Object.entries(problemsOf(error)).map(([place, problem]) => `${place}: ${problem}`);
}

/**
 * Everything that a schema found wrong, by place: `policy.inbound[0].actions` → what is wrong there.
 * An unknown member is a problem of its own, at its own place.
 */
export function problemsOf(error: z.ZodError): Record<string, string> {
  // A client may well call a member `__proto__`: assigned to an object, that problem would be lost.
  const problems = new Map<string, string>();
  const report = (path: readonly PropertyKey[], problem: string) => {
    const place = placeOf(path) || WHOLE;
    const before = problems.get(place);
    problems.set(place, before === undefined ? problem : `${before}; ${problem}`);
  };
  for (const issue of error.issues) {
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) report([...issue.path, key], issue.message);
    } else {
      report(issue.path, issue.message);
    }
  }
  return Object.fromEntries(problems);
}
