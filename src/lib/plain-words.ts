import type { z } from 'zod';

/** How the message of a member that was not sent begins. */
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
/** No token is as short, and hardly a word of a setting is longer. */
const MAX_SHOWN = 20;

/**
 * What is wrong with what was sent, for people: what it is and what is allowed. Given to a schema with each parse, it
 * takes the place of zod's own messages; those that a schema has itself stand. Of texts it shows short ones alone, and
 * only where one of a few words was expected: they may be secrets.
 */
export const inPlainWords: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case 'invalid_type':
      return wrong(TYPES.get(issue.expected) ?? issue.expected, sentFor(issue), issue.input);
    case 'invalid_value':
      return wrong(oneOf(issue.values), shown(issue.input), issue.input);
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
      return noneOf(issue.errors);
    default:
      return undefined;
  }
};

/** A path as people write it: `config.tokens[0].name`; empty for the whole. */
export function placeOf(path: readonly PropertyKey[]): string {
  const place = path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('');
  return place.replace(/^\./, '');
}

function wrong(wanted: string, sent: string, input: unknown): string {
  return input === undefined ? `${MISSING}: it must be ${wanted}` : `must be ${wanted}, not ${sent}`;
}

function oneOf(values: readonly unknown[]): string {
  const list = values.map((value) => JSON.stringify(value)).join(', ');
  return values.length === 1 ? list : `one of ${list}`;
}

function sentFor({ expected, input }: z.core.$ZodRawIssue<z.core.$ZodIssueInvalidType>): string {
  return expected === 'int' && typeof input === 'number' ? String(input) : kindOf(input);
}

function kindOf(input: unknown): string {
  if (input === null || typeof input === 'boolean') return String(input);
  return TYPES.get(Array.isArray(input) ? 'array' : typeof input) ?? typeof input;
}

function shown(input: unknown): string {
  const isShort = typeof input === 'string' ? input.length <= MAX_SHOWN : typeof input !== 'object';
  return isShort ? JSON.stringify(input) : kindOf(input);
}

type Bounded = z.core.$ZodRawIssue<z.core.$ZodIssueTooBig | z.core.$ZodIssueTooSmall>;

function bound(inclusive: string, exclusive: string, issue: Bounded, limit: number | bigint): string {
  const range = `${issue.inclusive === false ? exclusive : inclusive} ${limit}`;
  if (typeof issue.input === 'number') return `must be ${range}, not ${issue.input}`;
  const [unit, { length }] =
    typeof issue.input === 'string' ? ['characters', issue.input] : ['entries', issue.input as unknown[]];
  return `must have ${range} ${unit}, not ${length}`;
}

/** Names of members are the sender's own words: shown in part only, lest a misplaced secret is repeated. */
function unknownMember(keys: readonly string[], schema: unknown): string {
  const named = keys.slice(0, MAX_KEYS).map((key) => JSON.stringify(key.slice(0, MAX_KEY)));
  const known = (schema as z.core.$ZodObject | undefined)?._zod.def.shape ?? {};
  const supported = Object.keys(known).join(', ') || 'none';
  return `unknown member ${named.join(', ')}; supported: ${supported}`;
}

/** Of several forms, the one that what was sent has, with what is wrong within; or all of them when it has none. */
function noneOf(forms: readonly (readonly z.core.$ZodIssue[])[]): string {
  const meant = forms.find((issues) => issues.every(({ path }) => path.length > 0));
  const problems = (meant ?? forms.flat()).map(({ path, message }) =>
    path.length > 0 ? `${placeOf(path)}: ${message}` : message,
  );
  return [...new Set(problems)].join(meant ? '; ' : ', or ');
}
