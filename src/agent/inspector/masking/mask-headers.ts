import { maskUrl } from '../../../lib/masking/mask-url.ts';
import { isSecretHeader, MASK } from '../../../lib/masking/secret-names.ts';
import type { HeaderField } from '../parsing/message-head.ts';

/** Masks header values that are secrets, and those in URLs of any other header. */
export function maskHeaders(fields: readonly HeaderField[]): HeaderField[] {
  return fields.map(({ name, value }) => ({ name, value: maskHeader(name, value) }));
}

function maskHeader(name: string, value: string): string {
  if (!isSecretHeader(name)) return maskUrl(value);
  switch (name.toLowerCase()) {
    case 'cookie':
      return value.split(/; */).map(maskCookie).join('; ');
    case 'set-cookie': {
      const [cookie = '', ...attributes] = value.split(/; */);
      return [maskCookie(cookie), ...attributes].join('; ');
    }
    case 'authorization':
    case 'proxy-authorization': {
      const scheme = /^(Basic|Bearer|Digest|Negotiate|NTLM|Token|AWS4-HMAC-SHA256) /i.exec(value)?.[0] ?? '';
      return `${scheme}${MASK}`;
    }
    default:
      return value === '' ? '' : MASK;
  }
}

function maskCookie(cookie: string): string {
  const at = cookie.indexOf('=');
  if (at === -1) return cookie === '' ? '' : MASK;
  return `${cookie.slice(0, at)}=${MASK}`;
}
