import { isSecretParameter, MASK } from './secret-names.ts';

/** One `name=value` in a query, or in a text that holds a URL. */
const PARAMETER = /([?&;#])([^=&;#?\s"'<>]{1,200})=([^&;#\s"'<>]*)/g;
const PASSWORD = /(\/\/[^/?#\s:@"'<>]*):[^/?#\s@"'<>]+@/g;

/** Masks the secrets in a URL, in its path and query, or in all URLs of a text. */
export function maskUrl(url: string): string {
  if (!url.includes('=') && !url.includes('@')) return url;
  const masked = url.replace(PARAMETER, (all, before: string, name: string, value: string) =>
    value !== '' && isSecretParameter(decoded(name)) ? `${before}${name}=${MASK}` : all,
  );
  return masked.replace(PASSWORD, `$1:${MASK}@`);
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
