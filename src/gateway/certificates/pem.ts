/** One block of a PEM text. */
export interface PemBlock {
  /** `CERTIFICATE`, `PRIVATE KEY`, … */
  type: string;
  /** Whether there are headers before the data, such as `Proc-Type`. */
  hasHeaders: boolean;
  /** The block as it stood there. */
  text: string;
}

const BEGIN = '-----BEGIN ';
const DASHES = '-----';

/**
 * Takes a PEM text apart; what stands between the blocks is ignored (RFC 7468, section 2).
 *
 * @returns null when a block is not closed
 */
export function parsePem(text: string): PemBlock[] | null {
  const blocks: PemBlock[] = [];
  let at = text.indexOf(BEGIN);
  while (at >= 0) {
    const labelEnd = text.indexOf(DASHES, at + BEGIN.length);
    if (labelEnd < 0) return null;
    const type = text.slice(at + BEGIN.length, labelEnd);
    const closing = `${DASHES}END ${type}${DASHES}`;
    const end = text.indexOf(closing, labelEnd);
    if (end < 0) return null;
    const hasHeaders = text.slice(labelEnd + DASHES.length, end).includes(':');
    blocks.push({ type, hasHeaders, text: text.slice(at, end + closing.length) });
    at = text.indexOf(BEGIN, end + closing.length);
  }
  return blocks;
}
