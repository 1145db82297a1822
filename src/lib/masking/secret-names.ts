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
  ...[
    'api',
    'access',
    'auth',
    'client',
    'encryption',
    'function',
    'hmac',
    'master',
    'private',
    'secret',
    'service',
    'session',
  ]
    .concat('shared', 'signing', 'storage', 'subscription')
    .map((whose) => `${whose}key`),
];
/** Too short, or too common within other words: only as the last word of a name. */
const LAST_WORDS: ReadonlySet<string> = new Set(['pass', 'psk', 'jwt']);
/** Only as the whole name: `shipping-pin` may be anything. */
const WHOLE_NAMES: ReadonlySet<string> = new Set([
  'pin',
  'otp',
  'sig',
  'signature',
  'code-verifier',
  'session-id',
  'sessionid',
  'cvv',
  'cvc',
]);
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
const HEADER = /(?:^|-)(?:cookie2?|auth|signature|session(?:-?id)?|dpop)$/;
/** Says nothing about what a name stands for. */
const ENDS = /-?\d+$|-(?:confirm|confirmation|repeat|again|hash|value|plain|old|new|current)$/;
const MAX_NAME = 200;
const MAX_ENDS = 4;

/** Whether a member of JSON, or a field of a form, has that of a secret as its name. */
export function isSecretMember(name: string): boolean {
  return isSecret(hyphenated(name));
}

export function isSecretParameter(name: string): boolean {
  const words = hyphenated(name);
  return PARAMETERS.has(words) || isSecret(words);
}

export function isSecretHeader(name: string): boolean {
  const words = withoutEnds(hyphenated(name));
  return HEADER.test(words) || isSecret(words);
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
  return ENDINGS.some((ending) => joined.endsWith(ending));
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
