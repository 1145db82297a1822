import type { Stepwise } from '../stepwise.ts';
import { replaceStepwise } from './replace-stepwise.ts';
import { MASK } from './secret-names.ts';

/** Begins no earlier than a word does: what is no secret is read once. */
const START = String.raw`(?<![\w-])`;

/** Secrets that are known by their form, whatever their name: tokens that services issue, and signed ones (RFC 7519). */
const TOKENS = new RegExp(
  [
    String.raw`eyJ[\w-]{8,}\.[\w-]{2,}(?:\.[\w-]*)*`,
    String.raw`gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_\w{30,}|hf_\w{30,}`,
    String.raw`xox[abeprs]-[\w-]{10,}|[rs]k_(?:live|test)_\w{10,}|whsec_[\w+/=]{16,}|sk-[\w-]{20,}`,
    String.raw`(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}`,
  ]
    .map((each) => `${START}(?:${each})`)
    .join('|'),
  'g',
);
/** Words follow these as well: a credential has a digit, or is long. */
const SCHEME = new RegExp(
  String.raw`${START}((?:Bearer|Basic|Token) {1,4})(?=[\w.~+/=-]{0,100}\d|[\w.~+/=-]{24})[\w.~+/=-]{8,}`,
  'gi',
);
const PRIVATE_KEY =
  /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[\w+/=\s\\:,.]|-(?!----))*(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?/g;
/** In groups of four, as on the card. */
const CARD = /(?<![\w.-])\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?![\w-])/g;

/** Masks what is a secret by its form in a text that may be long. */
export function* maskKnownForms(text: string): Stepwise<string> {
  let masked = yield* replaceStepwise(text, TOKENS, () => MASK);
  masked = yield* replaceStepwise(masked, SCHEME, ([, scheme]) => `${scheme}${MASK}`);
  if (masked.includes('-----BEGIN ')) masked = yield* replaceStepwise(masked, PRIVATE_KEY, () => MASK);
  return yield* replaceStepwise(masked, CARD, ([number]) => (hasCheckDigit(number) ? MASK : null));
}

/** Whether the last digit is that of the others (ISO/IEC 7812-1). */
function hasCheckDigit(number: string): boolean {
  const digits = [...number.replace(/\D/g, '')].reverse().map(Number);
  const sum = digits.reduce((total, digit, at) => total + (at % 2 === 0 ? digit : ((digit * 2 - 1) % 9) + 1), 0);
  return sum > 0 && sum % 10 === 0;
}
