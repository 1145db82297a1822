import type { z } from 'zod';

/** Start of the message about a missing member. */
export const MISSING = 'is missing';

const TYPES = new Map<string, string>([
  ['string', 'a string'],
  ['number', 'a number'],
  ['int', 'a whole number'],
  ['boolean', 'true or false'],
  ['array', 'a list'],
  ['object', 'an object'],
  ['record', 'an object'],
]);

const MAX_KEYS = 5;
const MAX_KEY = 40;
/** Longer than most keywords, shorter than any token. */
const MAX_SHOWN = 20;

/**
 * Error map for zod that says what was sent and what is allowed. Messages that a schema defines itself take precedence.
 *
 * Input may contain secrets: a message quotes it only where one of a few values was expected, and only if it is short.
 */
export const validationMessage: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case 'invalid_type':
      return mismatch(TYPES.get(issue.expected) ?? issue.expected, sentFor(issue), issue.input);
    case 'invalid_value':
      return mismatch(oneOf(issue.values), shown(issue.input), issue.input);
    case 'too_big':
      return bound('at most', 'less than', issue, issue.maximum);
    case 'too_small':
      return issue.minimum === 1 && issue.origin !== 'number'
        ? 'must not be empty'
        : bound('at least', 'more than', issue, issue.minimum);
    case 'unrecognized_keys':
      return unknownMember(issue.keys, issue.inst);
    case 'invalid_key':
      return issue.issues[0]?.message;
    case 'invalid_union':
      return unionMessage(issue.errors);
    default:
      return undefined;
  }
};

/** The place of a problem with the whole input. */
const WHOLE = '(document)';

/** All problems that a schema found, as lines of place and problem. */
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

/** Formats a path as in `config.tokens[0].name`; empty for the root. */
export function formatPath(path: readonly PropertyKey[]): string {
  const place = path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('');
  return place.replace(/^\./, '');
}

function mismatch(expected: string, sent: string, input: unknown): string {
  return input === undefined ? `${MISSING}: it must be ${expected}` : `must be ${expected}, not ${sent}`;
}

function oneOf(values: readonly unknown[]): string {
  const list = values.map((value) => JSON.stringify(value)).join(', ');
  return values.length === 1 ? list : `one of ${list}`;
}

function sentFor({ expected, input }: z.core.$ZodRawIssue<z.core.$ZodIssueInvalidType>): string {
  return expected === 'int' && typeof input === 'number' ? String(input) : typeNameOf(input);
}

function typeNameOf(input: unknown): string {
  if (input === null || typeof input === 'boolean') return String(input);
  return TYPES.get(Array.isArray(input) ? 'array' : typeof input) ?? typeof input;
}

function shown(input: unknown): string {
  const isShort = typeof input === 'string' ? input.length <= MAX_SHOWN : typeof input !== 'object';
  return isShort ? JSON.stringify(input) : typeNameOf(input);
}

type Bounded = z.core.$ZodRawIssue<z.core.$ZodIssueTooBig | z.core.$ZodIssueTooSmall>;

function bound(inclusive: string, exclusive: string, issue: Bounded, limit: number | bigint): string {
  const range = `${issue.inclusive === false ? exclusive : inclusive} ${limit}`;
  if (typeof issue.input === 'number') return `must be ${range}, not ${issue.input}`;
  const [unit, { length }] =
    typeof issue.input === 'string' ? ['characters', issue.input] : ['entries', issue.input as unknown[]];
  return `must have ${range} ${unit}, not ${length}`;
}

/** The part of a message about an unknown member that follows its name. */
const SUPPORTED = '; supported: ';

/** @returns the message about several unknown members, as if this one were the only one */
export function unknownMemberAlone(key: string, message: string): string {
  const end = message.lastIndexOf(SUPPORTED);
  return message.startsWith('unknown member ') && end !== -1
    ? `unknown member ${named(key)}${message.slice(end)}`
    : message;
}

/** Truncates unknown names: a secret may be in the wrong place. */
const named = (key: string) => JSON.stringify(key.slice(0, MAX_KEY));

function unknownMember(keys: readonly string[], schema: unknown): string {
  const known = (schema as z.core.$ZodObject | undefined)?._zod.def.shape ?? {};
  const supported = Object.keys(known).join(', ') || 'none';
  return `unknown member ${keys.slice(0, MAX_KEYS).map(named).join(', ')}${SUPPORTED}${supported}`;
}

/** Describes the alternative that the input has the type of, or else all alternatives. */
function unionMessage(alternatives: readonly (readonly z.core.$ZodIssue[])[]): string {
  const closest = alternatives.find((issues) => issues.every(({ path }) => path.length > 0));
  const problems = (closest ?? alternatives.flat()).map(({ path, message }) =>
    path.length > 0 ? `${formatPath(path)}: ${message}` : message,
  );
  return [...new Set(problems)].join(closest ? '; ' : ', or ');
}
