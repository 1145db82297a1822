import { isUtf8 } from 'node:buffer';

/** Whether a header can carry a text: no control characters but the tab (RFC 9110, 5.5). */
export function isHeaderText(text: string): boolean {
  return /^[\t\x20-\x7e\x80-\uffff]*$/.test(text);
}

/** @returns a text as it stands in a header: its UTF-8 bytes, a character each */
export function headerBytes(text: string): string {
  return /[\x80-\uffff]/.test(text) ? Buffer.from(text).toString('latin1') : text;
}

/** @returns what a header says, given its bytes, a character each: UTF-8, or Latin-1 when they are none */
export function headerText(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  const bytes = Buffer.from(value, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : value;
}
