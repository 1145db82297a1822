import { randomInt } from 'node:crypto';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { hasInvalidPunycode } from '../../lib/network/punycode.ts';
import { quote } from '../../lib/quote.ts';

const MAX_NAME = 253;
const MAX_LABEL = 63;

/** Rules for names without a wildcard's `*.`; the first broken rule is reported. */
const RULES: readonly [code: string, problem: string, broken: (name: string) => boolean][] = [
  ['ERR_NGROK_397', `is longer than ${MAX_NAME} characters`, (name) => name.length > MAX_NAME],
  ['ERR_NGROK_355', 'contains an underscore', (name) => name.includes('_')],
  ['ERR_NGROK_326', 'contains a character other than a-z, 0-9, "-" and "."', (name) => /[^a-z0-9.-]/.test(name)],
  ['ERR_NGROK_327', 'contains an empty label ("..")', (name) => name === '' || name.includes('..')],
  [
    'ERR_NGROK_328',
    'has a label that does not start with a letter or digit',
    (name) => /(^|\.)[.-]/.test(name) || name.startsWith('.'),
  ],
  ['ERR_NGROK_329', 'has a label that does not end with a letter or digit', (name) => /[.-](\.|$)/.test(name)],
  ['ERR_NGROK_347', 'contains punycode that cannot be decoded', hasInvalidPunycode],
  ['ERR_NGROK_330', 'contains a double hyphen', (name) => /(^|\.)(?!xn--)[^.]*--/.test(name)],
  [
    'ERR_NGROK_396',
    `has a label longer than ${MAX_LABEL} characters`,
    (name) => name.split('.').some((label) => label.length > MAX_LABEL),
  ],
];

/**
 * Checks the syntax of a hostname that an agent asks for.
 *
 * @param wanted a hostname; its first label can be `*`
 * @returns the name in lower case
 * @throws {RpcError} when it is not a hostname
 */
export function checkEndpointName(wanted: string): string {
  const name = wanted.toLowerCase();
  const labels = name.replace(/^\*\./, '');
  for (const [code, problem, broken] of RULES) {
    if (broken(labels)) throw new RpcError(code, `the domain ${quote(name)} ${problem}`);
  }
  return name;
}

const ADJECTIVES =
  'agile amber brave bright brisk calm clever cosmic crisp daring eager early fair gentle golden happy honest keen kind light lively lucky mellow merry noble polite proud quick quiet royal silent smart snowy solid sunny swift tidy vivid warm wise'.split(
    ' ',
  );
const NOUNS =
  'acorn badger beaver birch brook canyon cedar comet coral crane delta dune eagle falcon fern fjord forest fox glacier harbor heron island lagoon lark maple meadow otter owl panda pebble pine planet prairie raven reef river robin sparrow spruce willow'.split(
    ' ',
  );

/** A pronounceable name below the base domain. */
export function randomEndpointName(base: string): string {
  return `${pick(ADJECTIVES)}-${pick(NOUNS)}-${randomInt(1000, 10_000)}.${base}`;
}

function pick(words: readonly string[]): string {
  return words[randomInt(words.length)] as string;
}
