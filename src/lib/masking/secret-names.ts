import { BoundedMap } from '../bounded-map.ts';

/** Stands for what is masked. */
export const MASK = '[masked]';

/**
 * What a secret is, for the inspector and its exports, the log, and diagnoses: names are compared as `newPassword`,
 * `new_password` and `X-New-Password` alike, without numbers and words such as `confirmation` at their ends.
 */
const ENDINGS = [
  ...[
    'password',
    'passwd',
    'passphrase',
    'passcode',
    'pwd',
    'secret',
    'token',
    'credential',
    'authorization',
    'assertion',
  ],
  ...['passwort', 'kennwort', 'contrasena', 'motdepasse', 'wachtwoord', 'senha'],
  ...['seedphrase', 'recoveryphrase', 'mnemonic', 'bearer', 'connectionstring', 'samlresponse', 'samlrequest'],
  ...[
    'access',
    'account',
    'api',
    'auth',
    'client',
    'deploy',
    'encryption',
    'function',
    'hmac',
    'license',
    'master',
    'private',
  ]
    .concat('secret', 'service', 'session', 'shared', 'signing', 'ssh', 'storage', 'subscription')
    .map((whose) => `${whose}key`),
  ...[
    'activation',
    'auth',
    'authorization',
    'backup',
    'device',
    'login',
    'mfa',
    'onetime',
    'otp',
    'recovery',
    'reset',
    'security',
  ]
    .concat('sms', 'totp', 'twofactor', 'verification')
    .map((what) => `${what}code`),
  // What payment cards, banks and states give to people.
  ...['creditcard', 'debitcard', 'cardnumber', 'cardno', 'ccnumber', 'ccnum', 'primaryaccountnumber', 'cardcode'],
  ...['bankaccount', 'bankaccountnumber', 'accountnumber', 'routingnumber'],
  ...[
    'socialsecurity',
    'socialinsurance',
    'nationalid',
    'nationalinsurance',
    'passport',
    'taxpayerid',
    'taxid',
    'driverslicense',
  ]
    .concat('driverlicense')
    .flatMap((what) => [what, `${what}number`, `${what}no`]),
];
/** Of the endings: most names have others. */
const LAST_LETTERS: ReadonlySet<string> = new Set(ENDINGS.map((ending) => ending.slice(-3)));
/** Too short, or too common within other words: only as the last word of a name. */
const LAST_WORDS: ReadonlySet<string> = new Set(
  'pass pw psk jwt otp totp ssn iban cvv cvc csc cvn csrf xsrf'.split(' '),
);
/** Only as the whole name: `shipping-pin` may be anything. */
const WHOLE_NAMES: ReadonlySet<string> = new Set(
  'pin tan pan sid auth cookie cookies set-cookie sig signature code-verifier session-id sessionid phpsessid jsessionid connect-sid'.split(
    ' ',
  ),
);
/** As parameters of a URL: the `code` of OAuth, for example. */
const PARAMETERS: ReadonlySet<string> = new Set([
  'code',
  'key',
  'auth',
  'sid',
  'session',
  'ticket',
  'x-amz-signature',
  'x-goog-signature',
]);
/** As the last words of a header's name. */
const HEADER = /(?:^|-)(?:cookie2?|auth|signature|session(?:-?id)?|dpop|hmac(?:-sha)?)$|^x-pin$/;
/** Says nothing about what a name stands for. */
const ENDS = /-?\d+$|-(?:confirm|confirmation|repeat|again|hash|value|plain|old|new|current)$/;
/** Numbers of tokens, as interfaces of language models count them. */
const COUNTED = /tokens$/i;
const MAX_NAME = 200;
const MAX_ENDS = 4;

/** Whether a member of JSON, or a field of a form, has that of a secret as its name. */
export function isSecretMember(name: string): boolean {
  if (name.length > MAX_REMEMBERED_NAME) return isSecret(hyphenated(name)) || isSecretIn(name);
  let found = known.get(name);
  if (found === undefined) {
    found = isSecret(hyphenated(name)) || isSecretIn(name);
    known.set(name, found);
  }
  return found;
}

/** The names of a text are often the same. A longer one could be a part of its text in memory, and would keep all of it. */
const MAX_REMEMBERED_NAME = 12;
const known = new BoundedMap<string, boolean>(1_000);

export function isSecretParameter(name: string): boolean {
  const words = hyphenated(name);
  return PARAMETERS.has(words) || isSecret(words) || isSecretIn(name);
}

/** Whether a name such as `user[pin]` ends with that of a secret. */
function isSecretIn(name: string): boolean {
  const inner = name.endsWith(']') ? name.slice(name.lastIndexOf('[') + 1, -1) : '';
  return inner !== '' && isSecret(hyphenated(inner));
}

export function isSecretHeader(name: string): boolean {
  const words = withoutEnds(hyphenated(name));
  return HEADER.test(words) || isSecret(words);
}

/**
 * Whether a value that is no string is worth nothing: `null`, `true`, what is masked already, or a number of tokens.
 *
 * @param name of a secret
 */
export function isEmptyValue(name: string, value: string): boolean {
  if (value === MASK || /^(?:true|false|null|none|undefined|yes|no)$/i.test(value)) return true;
  return COUNTED.test(name) && /^\d+$/.test(value);
}

/** Whether a field of a log line has that of a secret as its name. */
export function isSecretField(name: string): boolean {
  return name === 'key' || isSecretMember(name);
}

function isSecret(words: string): boolean {
  if (WHOLE_NAMES.has(words)) return true;
  const bare = withoutEnds(words);
  const singular = bare.endsWith('s') && !bare.endsWith('ss') ? bare.slice(0, -1) : bare;
  if (LAST_WORDS.has(singular.slice(singular.lastIndexOf('-') + 1))) return true;
  const joined = singular.replaceAll('-', '');
  return LAST_LETTERS.has(joined.slice(-3)) && ENDINGS.some((ending) => joined.endsWith(ending));
}

function withoutEnds(words: string): string {
  let bare = words;
  for (let count = 0; count < MAX_ENDS && ENDS.test(bare); count++) bare = bare.replace(ENDS, '');
  return bare;
}

/** `newPassword`, `new_password` and `new.password` alike. */
function hyphenated(name: string): string {
  return name
    .slice(0, MAX_NAME)
    .replace(/([a-z0-9])([A-Z])/g, '$1-$2')
    .replace(/[^A-Za-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')
    .toLowerCase();
}
