/** Stands for what is masked. */
export const MASK = '[masked]';

const SECRET_WORDS =
  'pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|api-?key|private-?key|access-?key|client-?secret';
/** Members of JSON and fields of forms: `password`, `newPassword`, `client_secret`, `apiKey`, `pin`, `otp`. */
const SECRET_MEMBER = new RegExp(
  `^(?:${SECRET_WORDS}|pin|otp|psk|jwt|assertion|sig(?:nature)?|code-verifier|authorization|session-?id|cvv|cvc)$|(?:^|-)(?:${SECRET_WORDS}|psk|jwt)s?(?:-\\d+|-confirm(?:ation)?|-hash)?$`,
);
/** Parameters of a query, where more is a secret: the `code` of OAuth, `key`, `auth`. */
const SECRET_PARAMETER =
  /^(?:code|key|auth|sid|sig|session|ticket|state-token|x-amz-(?:signature|security-token|credential)|x-goog-(?:signature|credential))$/;
const SECRET_HEADER =
  /^(?:proxy-)?authorization$|^(?:set-)?cookie2?$|(?:^|-)(?:tokens?|secret|password|passwd|passphrase|api-?key|access-?key|private-?key|signature|credentials?|session(?:-?id)?|jwt|auth|assertion)$/;

/** Whether a member of JSON, or a field of a form, has that of a secret as its name. */
export function isSecretMember(name: string): boolean {
  return SECRET_MEMBER.test(hyphenated(name));
}

export function isSecretParameter(name: string): boolean {
  return SECRET_PARAMETER.test(hyphenated(name)) || isSecretMember(name);
}

export function isSecretHeader(name: string): boolean {
  return SECRET_HEADER.test(name.toLowerCase());
}

/** `newPassword`, `new_password` and `new.password` alike. */
function hyphenated(name: string): string {
  return name
    .slice(0, 200)
    .replace(/([a-z0-9])([A-Z])/g, '$1-$2')
    .replace(/[^A-Za-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .toLowerCase();
}
