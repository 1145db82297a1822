import { isUtf8 } from 'node:buffer';

/** Whether a header can carry a text: no control characters except tab (RFC 9110, section 5.5). */
export function isHeaderText(text: string): boolean {
  return /^[\t\x20-\x7e\x80-\uffff]*$/.test(text);
}

/** @returns the UTF-8 bytes of a text, one character each, as in a header */
export function headerBytes(text: string): string {
  return /[\x80-\uffff]/.test(text) ? Buffer.from(text).toString('latin1') : text;
}

/** @returns the text of a header's bytes, given one character each: UTF-8 if valid, else Latin-1 */
export function headerText(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  const bytes = Buffer.from(value, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : value;
}
