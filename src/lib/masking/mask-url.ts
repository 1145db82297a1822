import { runAtOnce, type Stepwise } from '../stepwise.ts';
import { isSecretParameter, MASK } from './secret-names.ts';

/** One `name=value` in a query, or in a text that holds a URL. */
const PARAMETER = /([?&;#])([^=&;#?\s"'<>]{1,200})=([^&;#\s"'<>]*)/g;
const PASSWORD = /(\/\/[^/?#\s:@"'<>]*):[^/?#\s@"'<>]+@/g;

/** The token of a share link. */
const SHARE = /(\/ngrok\/share\/)[^/?#\s"'<>]+/g;

/** Matches in one step, which take less than a millisecond. */
const AT_ONCE = 200;

/** Masks the secrets in a URL, in its path and query, or in all URLs of a text. */
export function maskUrl(url: string): string {
  return runAtOnce(maskUrlStepwise(url));
}

/** Masks a text that may be long like {@link maskUrl}. */
export function* maskUrlStepwise(text: string): Stepwise<string> {
  if (!text.includes('=') && !text.includes('@') && !text.includes('/ngrok/share/')) return text;
  const shared = yield* replaceStepwise(text, SHARE, ([, before]) => `${before}${MASK}`);
  const masked = yield* replaceStepwise(shared, PARAMETER, ([, before, name = '', value]) =>
    value !== '' && isSecretParameter(decoded(name)) ? `${before}${name}=${MASK}` : null,
  );
  return yield* replaceStepwise(masked, PASSWORD, ([, before]) => `${before}:${MASK}@`);
}

/**
 * Replaces matches in a text that may be long.
 *
 * @param replacement null: the match stays as it is
 */
export function* replaceStepwise(
  text: string,
  pattern: RegExp,
  replacement: (match: RegExpExecArray) => string | null,
): Stepwise<string> {
  let [replaced, copied, count] = ['', 0, 0];
  for (const match of text.matchAll(pattern)) {
    if (++count % AT_ONCE === 0) yield;
    const instead = replacement(match);
    if (instead === null) continue;
    replaced += text.slice(copied, match.index) + instead;
    copied = match.index + match[0].length;
  }
  return replaced + text.slice(copied);
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
