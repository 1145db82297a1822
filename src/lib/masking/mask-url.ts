import { runAtOnce, type Stepwise } from '../stepwise.ts';
import { replaceStepwise } from './replace-stepwise.ts';
import { isEmptyValue, isSecretParameter, MASK } from './secret-names.ts';
import { maskKnownForms } from './secret-values.ts';

/** One `name=value` in a query, or in a text that holds a URL. */
const PARAMETER = /([?&;#])([^=&;#?\s"'<>]{1,200})=([^&;#\s"'<>]*)/g;
const PASSWORD = /(\/\/[^/?#\s:@"'<>]*):[^/?#\s@"'<>]+@/g;

/** The token of a share link. */
const SHARE = /(\/ngrok\/share\/)[^/?#\s"'<>]+/g;

/** Masks the secrets in a URL, in its path and query, or in all URLs of a text, and those that are known by their form. */
export function maskUrl(url: string): string {
  return runAtOnce(maskUrlStepwise(url));
}

/** Masks a text that may be long like {@link maskUrl}. */
export function* maskUrlStepwise(sent: string): Stepwise<string> {
  const text = yield* maskKnownForms(sent);
  if (!text.includes('=') && !text.includes('@') && !text.includes('/ngrok/share/')) return text;
  const shared = yield* replaceStepwise(text, SHARE, ([, before]) => `${before}${MASK}`);
  const masked = yield* replaceStepwise(shared, PARAMETER, ([, before, name = '', value]) =>
    value !== '' && isSecretParameter(decoded(name)) && !isEmptyValue(decoded(name), value ?? '')
      ? `${before}${name}=${MASK}`
      : null,
  );
  return yield* replaceStepwise(masked, PASSWORD, ([, before]) => `${before}:${MASK}@`);
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
