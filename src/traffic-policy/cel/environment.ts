import { type CelFunc, celEnv } from '@bufbuild/cel';
import { strings } from '@bufbuild/cel/ext';
import { ENCODING_FUNCTIONS } from './functions/encoding-functions.ts';
import { HASH_FUNCTIONS } from './functions/hash-functions.ts';
import { LIST_FUNCTIONS } from './functions/list-functions.ts';
import { NETWORK_FUNCTIONS } from './functions/network-functions.ts';
import { REQUEST_FUNCTIONS, RESPONSE_FUNCTIONS } from './functions/request-functions.ts';
import { TEXT_FUNCTIONS } from './functions/text-functions.ts';
import { TIME_FUNCTIONS } from './functions/time-functions.ts';
import { metered, PRICES } from './metered-environment.ts';

export const ENVIRONMENT = metered(
  celEnv({
    funcs: [
      ...strings,
      ...TEXT_FUNCTIONS,
      ...LIST_FUNCTIONS,
      ...TIME_FUNCTIONS,
      ...HASH_FUNCTIONS,
      ...ENCODING_FUNCTIONS,
      ...NETWORK_FUNCTIONS,
      ...REQUEST_FUNCTIONS,
      ...RESPONSE_FUNCTIONS,
    ],
  }),
  PRICES,
);

/** Operators that the library implements without a function. */
const OPERATORS: readonly [name: string, operands: number][] = [
  ['_[_]', 2],
  ['_?_:_', 3],
  ['_&&_', 2],
  ['_||_', 2],
  ['@not_strictly_false', 1],
];

/** The numbers of arguments of a function; `.n` stands for a method with n arguments. */
const SIGNATURES = new Map<string, Set<string>>(
  OPERATORS.map(([name, operands]) => [name, new Set([String(operands)])]),
);
for (const func of ENVIRONMENT.funcs) {
  const known = SIGNATURES.get(func.name) ?? new Set();
  SIGNATURES.set(func.name, known.add(signature(func)));
}

function signature(func: CelFunc): string {
  return `${func.target === undefined ? '' : '.'}${func.arguments.length}`;
}

/** Names in examples of ngrok's documentation that no function has. */
const SUGGESTIONS: Readonly<Record<string, string>> = {
  includes: 'contains',
  starts_with: 'startsWith',
  ends_with: 'endsWith',
  'headers.get': "req.headers['name']",
  get: "map['key']",
  toLowerCase: 'lower',
  toUpperCase: 'upper',
  length: 'size',
};

/**
 * @param name of a function or method, with its namespace if it has one
 * @returns what is wrong with the call; null when it is valid
 */
export function callProblem(name: string, isMethod: boolean, args: number): string | null {
  const known = SIGNATURES.get(name);
  if (!known) {
    const hint = Object.hasOwn(SUGGESTIONS, name) ? `; use ${SUGGESTIONS[name]}` : '';
    return `unknown function ${name}${hint}`;
  }
  if (known.has(`${isMethod ? '.' : ''}${args}`)) return null;
  const wanted = [...known].filter((each) => each.startsWith('.') === isMethod);
  if (wanted.length === 0) return `${name} is ${isMethod ? 'a function, not a method' : 'a method, not a function'}`;
  return `${name} cannot be called with ${args} arguments`;
}

export function isNamespaced(name: string): boolean {
  return SIGNATURES.has(name);
}

const ofRequest: ReadonlySet<string> = new Set(REQUEST_FUNCTIONS.map(({ name }) => name));
const ofResponse: ReadonlySet<string> = new Set(RESPONSE_FUNCTIONS.map(({ name }) => name));

export function rootReadBy(name: string): 'req' | 'res' | null {
  if (ofRequest.has(name)) return 'req';
  return ofResponse.has(name) ? 'res' : null;
}
