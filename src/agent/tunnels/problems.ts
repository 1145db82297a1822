import type { z } from 'zod';
import { formatPath, unknownMemberAlone } from '../../lib/validation-messages.ts';

const WHOLE = '(document)';

export function problemList(error: z.ZodError): string[] {
  return Object.entries(problemsOf(error)).map(([place, problem]) => `${place}: ${problem}`);
}

/** All problems that a schema found, by place such as `policy.inbound[0].actions`. Each unknown member has its own. */
export function problemsOf(error: z.ZodError): Record<string, string> {
  // A Map keeps the problem of a member called `__proto__`, which assigning to an object would lose.
  const problems = new Map<string, string>();
  const report = (path: readonly PropertyKey[], problem: string) => {
    const place = formatPath(path) || WHOLE;
    const before = problems.get(place);
    problems.set(place, before === undefined ? problem : `${before}; ${problem}`);
  };
  for (const issue of error.issues) {
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) report([...issue.path, key], unknownMemberAlone(key, issue.message));
    } else {
      report(issue.path, issue.message);
    }
  }
  return Object.fromEntries(problems);
}
