import { isSecretMember, MASK } from '../../../lib/masking/secret-names.ts';
import type { Stepwise } from '../../../lib/stepwise.ts';

/** More of a part's head is not searched for its name. */
const MAX_HEAD = 8_192;
const BOUNDARY = /;[ \t]*boundary="?([^";\s]+)/i;
/** Quoted, as a token, or extended (RFC 8187). */
const NAME = /[;\s]name(\*?)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/gi;
/** Lines in one step. */
const AT_ONCE = 1_000;
const PART_TYPE = /^content-type:[ \t]*([^\r\n]*)/im;

/**
 * Masks the parts of multipart/form-data (RFC 7578) that have that of a secret as their name. Reads each line once, however
 * many parts the text pretends to have.
 *
 * @param maskPart masks what another part contains, by its content type
 */
export function* maskMultipart(
  text: string,
  contentType: string,
  maskPart: (text: string, contentType: string | null) => Stepwise<string>,
): Stepwise<string> {
  const delimiter = `--${BOUNDARY.exec(contentType)?.[1] ?? /^--([^\r\n]+)/.exec(text)?.[1] ?? ''}`;
  const masked: string[] = [];
  // Before the first delimiter nothing belongs to a part.
  let head = '';
  let headAt = -1;
  let valueAt = 0;
  const valueEnds = function* (end: number): Stepwise<void> {
    const value = text.slice(valueAt, end);
    // The line end before a delimiter belongs to it.
    const ending = value.endsWith('\r\n') ? '\r\n' : value.endsWith('\n') ? '\n' : '';
    const content = value.slice(0, value.length - ending.length);
    if (content === '') masked.push(ending);
    else if (namesIn(head).some(isSecretMember)) masked.push(MASK, ending);
    else masked.push(yield* maskPart(content, PART_TYPE.exec(head)?.[1] ?? null), ending);
    yield;
  };
  let lines = 0;
  for (let at = 0; at < text.length; ) {
    if (++lines % AT_ONCE === 0) yield;
    const lineEnd = text.indexOf('\n', at);
    const next = lineEnd === -1 ? text.length : lineEnd + 1;
    if (text.startsWith(delimiter, at)) {
      if (headAt === -1) yield* valueEnds(at);
      else masked.push(text.slice(headAt, at));
      masked.push(text.slice(at, next));
      headAt = next;
    } else if (headAt !== -1 && isBlank(text, at, next)) {
      head = text.slice(headAt, Math.min(at, headAt + MAX_HEAD));
      masked.push(text.slice(headAt, next));
      headAt = -1;
      valueAt = next;
    }
    at = next;
  }
  if (headAt === -1) yield* valueEnds(text.length);
  else masked.push(text.slice(headAt));
  return masked.join('');
}

function isBlank(text: string, at: number, next: number): boolean {
  return next - at === 1 ? text[at] === '\n' : next - at === 2 && text.startsWith('\r\n', at);
}

function namesIn(head: string): string[] {
  return [...head.matchAll(NAME)].map(([, star, quoted, token = '']) => {
    const name = quoted ?? token;
    return star === '' ? name : decoded(name.slice(name.lastIndexOf("'") + 1));
  });
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
