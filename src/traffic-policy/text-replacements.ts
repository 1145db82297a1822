import { isUtf8 } from 'node:buffer';
import type { RegularExpression } from './regular-expression.ts';
import type { ProcessorTime } from './state/processor-time.ts';

export interface TextReplacement {
  readonly pattern: RegularExpression;
  /** With `$1` to `$99` for groups, and `$0` for the whole match. */
  readonly to: string;
}

/** A body, which is decoded when its turn has come: bodies that wait would take far more memory. */
export interface SearchedBody {
  readonly bytes: Uint8Array;
  /**
   * Undoes its `content-encoding`; null: it has none. Not a thread's work: Node.js 20 ends the whole process when a thread is
   * ended while it creates a decoder.
   */
  readonly decode: ((time: ProcessorTime) => Promise<Uint8Array>) | null;
}

/** What is searched of a body, or the text as it is. @throws what decoding throws */
export async function contentOf(searched: string | SearchedBody, time: ProcessorTime): Promise<string | Uint8Array> {
  if (typeof searched === 'string') return searched;
  return searched.decode === null ? searched.bytes : searched.decode(time);
}

export interface ReplacedText {
  readonly text: string;
  /** Of the body that the text stands for: bytes that are not UTF-8 stay as they are, with one character each. */
  readonly encoding: 'utf8' | 'latin1';
  /** The replacements that had a match, as policies read them. */
  readonly matches: readonly { readonly replacement_index: number; readonly matched_content: string }[];
}

/** Characters of a result. Texts have at most half as many. */
const MAX_LENGTH = 2 * 1024 * 1024;
/** Characters of a match that policies can read. */
const MAX_SHOWN = 4096;

const NO_BUDGET = { spend: () => {} };

/**
 * Replaces all matches in a text or a body, one replacement after another.
 *
 * @throws {PolicyFailure} when the result is too long
 */
export function replaceAll(searched: string | Uint8Array, replacements: readonly TextReplacement[]): ReplacedText {
  const bytes = typeof searched === 'string' ? null : searched;
  const encoding = bytes === null || isUtf8(bytes) ? 'utf8' : 'latin1';
  const matches: { replacement_index: number; matched_content: string }[] = [];
  let text =
    bytes === null ? String(searched) : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString(encoding);
  for (const [replacement_index, { pattern, to }] of replacements.entries()) {
    const first = pattern.first(text);
    if (first === null) continue;
    matches.push({ replacement_index, matched_content: (first.groups[0] ?? '').slice(0, MAX_SHOWN) });
    const replacement = encoding === 'utf8' ? to : Buffer.from(to).toString('latin1');
    text = pattern.replace(text, replacement, { all: true, budget: NO_BUDGET, maxLength: MAX_LENGTH });
  }
  return { text, encoding, matches };
}
