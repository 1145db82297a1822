export interface PemBlock {
  /** `CERTIFICATE`, `PRIVATE KEY`, … */
  type: string;
  /** Whether headers precede the data, for example `Proc-Type`. */
  hasHeaders: boolean;
  text: string;
}

const BEGIN = '-----BEGIN ';
const DASHES = '-----';

/** Parses PEM blocks, ignoring text between them (RFC 7468, section 2); returns null when one is not closed. */
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
