import { isUtf8 } from 'node:buffer';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { messageOf } from '../lib/errors.ts';
import type { Coding } from './action-parts/message-body.ts';
import { PolicyFailure } from './policy-errors.ts';
import type { RegularExpression } from './regular-expression.ts';

export interface TextReplacement {
  readonly pattern: RegularExpression;
  /** With `$1` to `$99` for groups, and `$0` for the whole match. */
  readonly to: string;
}

/** A body, which becomes a text when its turn has come: texts that wait would take more memory, decoded bodies far more. */
export interface SearchedBody {
  readonly bytes: Uint8Array;
  /** Of its `content-encoding`; null: it has none. */
  readonly coding: Coding | null;
  /** Limit of what it holds when it is decoded. */
  readonly maxBytes: number;
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

const DECODE = { gzip: gunzipSync, deflate: inflateSync, br: brotliDecompressSync };

const NO_BUDGET = { spend: () => {} };

/**
 * Replaces all matches in a text or a body, one replacement after another.
 *
 * @throws {PolicyFailure} when a body cannot be decoded, or the result is too long
 */
export function replaceAll(searched: string | SearchedBody, replacements: readonly TextReplacement[]): ReplacedText {
  const bytes = typeof searched === 'string' ? null : decoded(searched);
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

function decoded({ bytes, coding, maxBytes }: SearchedBody): Uint8Array {
  if (coding === null) return bytes;
  try {
    return DECODE[coding](bytes, { maxOutputLength: maxBytes });
  } catch (error) {
    const isLong = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
    const problem = isLong ? `its content is longer than ${maxBytes} bytes` : messageOf(error);
    throw new PolicyFailure('ERR_NGROK_2300', `the body cannot be decoded: ${problem}`, { cause: error });
  }
}
